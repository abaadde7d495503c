//! Images that models take: what of them may enter a conversation, and how one that
//! may not is made fit. Providers refuse a request for one bad image in it, and the
//! image would be in every later request of its session.
//!
//! What isn't here: reading files (`tools::read`), and keeping images from models by
//! settings or by what a model can do (`conversation`).

mod admit;
mod decode;
mod encode;
#[cfg(test)]
mod tests;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

pub(crate) use admit::admit;

/// Width and height that an image is scaled down to, in pixels: the least that APIs
/// take, which for Anthropic's is that of requests with more than 20 images.
const MAX_SIDE: u32 = 2_000;
/// Bytes in base64 that an image stays below; 5 MB is the least that APIs take.
const MAX_BASE64: usize = 4_500_000;
/// The same limits for images that settings say not to change: what APIs take at all.
const MAX_UNCHANGED_SIDE: u32 = 8_000;
const MAX_UNCHANGED_BYTES: usize = 3_750_000;
/// The largest file that is looked at.
const MAX_SOURCE_BYTES: usize = 64 * 1024 * 1024;

/// In pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Size {
    fn is_within(self, side: u32) -> bool {
        self.width <= side && self.height <= side
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

/// An image that models take.
#[derive(Debug)]
pub(crate) struct Fitted {
    /// By the content.
    pub(crate) mime_type: &'static str,
    /// As it is looked at, before it was changed.
    pub(crate) original: Size,
    /// None: the bytes are fit as they are.
    pub(crate) changed: Option<Changed>,
}

#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mime_type: &'static str,
    pub(crate) size: Size,
}

/// Why an image cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ImageError {
    #[error("it is not an image that models take (png, jpeg, gif, webp); convert it")]
    NotAnImage,
    #[error("its data is not base64")]
    NotBase64,
    #[error("the {mime_type} data cannot be decoded ({reason}); save the image anew")]
    Undecodable { mime_type: &'static str, reason: String },
    #[error("the {mime_type} image cannot be scaled down ({reason}); make a smaller copy")]
    Unscalable { mime_type: &'static str, reason: String },
    #[error("an image of {size} pixels takes too much memory; make a smaller copy")]
    TooManyPixels { size: Size },
    #[error(
        "the image of {size} pixels is larger than {side}x{side}; make a smaller copy, or switch on images.autoResize in settings.json",
        side = MAX_UNCHANGED_SIDE
    )]
    TooWide { size: Size },
    #[error("the image is larger than {limit} bytes; make a smaller copy")]
    TooLarge { limit: usize },
}

/// The type of an image that models take, by its first bytes; none for anything else.
pub fn image_type(start: &[u8]) -> Option<&'static str> {
    match start {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// The most bytes that a file may have to be looked at.
pub(crate) fn max_bytes(auto_resize: bool) -> usize {
    if auto_resize { MAX_SOURCE_BYTES } else { MAX_UNCHANGED_BYTES }
}

/// Makes an image fit: decodes it, and where it is too large, scales or encodes it
/// anew. Of an animation that is changed the first frame is left. Takes seconds of
/// CPU time for a large one: not for async threads.
///
/// # Errors
/// It is none, it is broken, or it is larger than may be decoded; without
/// `auto_resize`, than may be sent.
pub(crate) fn fit(bytes: &[u8], auto_resize: bool) -> Result<Fitted, ImageError> {
    /// Pixels take hundreds of megabytes: one image at a time.
    static TURN: Mutex<()> = Mutex::new(());

    let mime_type = image_type(bytes).ok_or(ImageError::NotAnImage)?;
    let limit = max_bytes(auto_resize);
    if bytes.len() > limit {
        return Err(ImageError::TooLarge { limit });
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // A decoder's fault must not take the conversation along.
    catch_unwind(AssertUnwindSafe(|| fit_now(bytes, mime_type, auto_resize))).unwrap_or_else(|_| {
        Err(ImageError::Undecodable { mime_type, reason: "the decoder panicked".to_owned() })
    })
}

fn fit_now(bytes: &[u8], mime_type: &'static str, auto_resize: bool) -> Result<Fitted, ImageError> {
    let image = decode::decode(bytes, mime_type)?;
    let original = Size { width: image.width(), height: image.height() };
    let is_fit = if auto_resize {
        original.is_within(MAX_SIDE) && is_small(bytes)
    } else if original.is_within(MAX_UNCHANGED_SIDE) {
        true
    } else {
        return Err(ImageError::TooWide { size: original });
    };
    let changed = if is_fit {
        None
    } else {
        let changed = encode::shrink(image, is_lossy(bytes));
        Some(
            changed
                .map_err(|error| ImageError::Unscalable { mime_type, reason: error.to_string() })?,
        )
    };
    Ok(Fitted { mime_type, original, changed })
}

/// Whether the bytes stay below the limit in base64.
fn is_small(bytes: &[u8]) -> bool {
    bytes.len().div_ceil(3) * 4 < MAX_BASE64
}

/// Whether it is a JPEG, or a WebP of the plain lossy kind. Both are opaque.
fn is_lossy(bytes: &[u8]) -> bool {
    match image_type(bytes) {
        Some("image/jpeg") => true,
        Some("image/webp") => bytes.get(12..16) == Some(b"VP8 "),
        _ => false,
    }
}
