//! `@FILE` arguments: files that go into the first prompt.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use wharf_agent::resources::read_regular;
use wharf_agent::tools::image_type;
use wharf_protocol::ImageContent;

/// The largest file that goes into a prompt; an RPC client's line has the same cap.
const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;

/// The prompts of a one-shot run.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    /// One after the other; the first carries the files.
    pub(crate) texts: Vec<String>,
    /// Of the first prompt.
    pub(crate) images: Vec<ImageContent>,
}

/// Splits arguments into files and prompts, and reads the files.
pub(crate) fn read(arguments: Vec<String>) -> anyhow::Result<Prompts> {
    let mut prompts = Prompts::default();
    let mut files = String::new();
    for argument in arguments {
        match argument.strip_prefix('@') {
            Some(path) if !path.is_empty() => {
                let bytes = read_regular(Path::new(path), MAX_FILE_BYTES)
                    .map_err(|error| anyhow!("{path} {error}"))?;
                if let Some(mime_type) = image_type(&bytes) {
                    prompts.images.push(ImageContent {
                        data: base64::engine::general_purpose::STANDARD.encode(&bytes),
                        mime_type: mime_type.to_owned(),
                    });
                } else {
                    let text = String::from_utf8(bytes).ok().with_context(|| {
                        format!("{path} is neither UTF-8 text nor an image (png, jpeg, gif, webp)")
                    })?;
                    let name = Path::new(path).display();
                    files.push_str(&format!("<file name=\"{name}\">\n{text}\n</file>\n"));
                }
            }
            _ => prompts.texts.push(argument),
        }
    }
    if !files.is_empty() || (!prompts.images.is_empty() && prompts.texts.is_empty()) {
        match prompts.texts.first_mut() {
            Some(first) => first.insert_str(0, &files),
            None => prompts.texts.push(files),
        }
    }
    Ok(prompts)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn files_go_into_the_first_prompt() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = dir.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            format!("@{}", path.display())
        };
        let text = file("a.txt", b"A");
        let image = file("i", b"\x89PNG\r\n\x1a\n");
        let binary = file("b", b"\xfe\xff");
        let prompts = read(vec![text.clone(), image, "look".into(), "then".into()]).unwrap();
        let name = &text[1..];
        assert_eq!(
            prompts.texts,
            [format!("<file name=\"{name}\">\nA\n</file>\nlook"), "then".into()]
        );
        assert_eq!(prompts.images[0].mime_type, "image/png");
        assert!(read(vec![binary]).unwrap_err().to_string().contains("neither UTF-8"));
        let absent = read(vec!["@/absent".into()]).unwrap_err();
        assert!(absent.to_string().starts_with("/absent cannot be read: "), "{absent}");
    }
}
