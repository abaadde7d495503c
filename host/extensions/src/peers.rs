//! What the extensions of a host have to do with each other. The host knows all of them;
//! each of them finds it through `Services`.

use std::fmt;
use std::sync::Arc;

use crate::extension::Extension;
use crate::registration::Tool;

pub(crate) trait Peers: Send + Sync + fmt::Debug {
    /// Those who may want an event of an extension.
    fn bus_targets(&self, topic: &str) -> Vec<Arc<Extension>>;

    /// Why `extension` cannot have `tool`, if so.
    fn tool_clash(&self, extension: &Arc<Extension>, tool: &Tool) -> Option<String>;

    /// An extension has other tools than before.
    fn tools_changed(&self);
}
