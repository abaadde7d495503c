//! From a file's bytes to pixels, within limits.

use std::io::Cursor;

use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder as _, ImageFormat, ImageReader, Limits};

use super::{ImageError, Size};

/// Bytes of decoded pixels: 134 million of RGB, 100 million with alpha.
const MAX_DECODED_BYTES: u64 = 384 * 1024 * 1024;
/// What a decoder may allocate, its own buffers included.
const MAX_ALLOCATED_BYTES: u64 = 512 * 1024 * 1024;

/// The image, or an animation's first frame, turned as EXIF says.
pub(super) fn decode(bytes: &[u8], mime_type: &'static str) -> Result<DynamicImage, ImageError> {
    let undecodable =
        |error: image::ImageError| ImageError::Undecodable { mime_type, reason: error.to_string() };
    let format = ImageFormat::from_mime_type(mime_type).ok_or(ImageError::NotAnImage)?;
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MAX_ALLOCATED_BYTES);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(undecodable)?;
    let (width, height) = decoder.dimensions();
    // Before anything of this size is allocated.
    if decoder.total_bytes() > MAX_DECODED_BYTES {
        return Err(ImageError::TooManyPixels { size: Size { width, height } });
    }
    // Broken metadata does not make the pixels unusable.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(undecodable)?;
    image.apply_orientation(orientation);
    Ok(image)
}
