//! From pixels to bytes within the limits.

use image::codecs::jpeg::JpegEncoder;
use image::codecs::png::{CompressionType, FilterType as PngFilter, PngEncoder};
use image::imageops::FilterType;
use image::{DynamicImage, ImageResult, RgbImage, Rgba, RgbaImage};

use super::{Changed, MAX_SIDE, Size, is_small};

/// Tried one after the other, in percent.
const JPEG_QUALITIES: [u8; 4] = [85, 70, 55, 40];

/// Scales the image down to the largest size that may be sent, and encodes it: as PNG,
/// or where that is too large or the image is `lossy` already, as JPEG on white.
///
/// # Errors
/// An encoder failed.
pub(super) fn shrink(image: DynamicImage, lossy: bool) -> ImageResult<Changed> {
    let mut image = scale(plain(image), MAX_SIDE, MAX_SIDE);
    if !lossy {
        let bytes = png(&image)?;
        if is_small(&bytes) {
            return Ok(Changed { bytes, mime_type: "image/png", size: size(&image) });
        }
    }
    image = flatten(image);
    loop {
        for quality in JPEG_QUALITIES {
            let mut bytes = Vec::new();
            image.write_with_encoder(JpegEncoder::new_with_quality(&mut bytes, quality))?;
            if is_small(&bytes) {
                return Ok(Changed { bytes, mime_type: "image/jpeg", size: size(&image) });
            }
        }
        // Noise of the full size.
        let Size { width, height } = size(&image);
        image = scale(image, width.div_ceil(2), height.div_ceil(2));
    }
}

fn size(image: &DynamicImage) -> Size {
    Size { width: image.width(), height: image.height() }
}

/// 8 bits a channel, and alpha only where something is not opaque.
fn plain(image: DynamicImage) -> DynamicImage {
    match image {
        DynamicImage::ImageLuma8(_) | DynamicImage::ImageRgb8(_) => image,
        DynamicImage::ImageLuma16(_) => image.into_luma8().into(),
        _ if !image.color().has_alpha() => image.into_rgb8().into(),
        _ => {
            let image = image.into_rgba8();
            let is_opaque = image.pixels().all(|pixel| pixel.0[3] == u8::MAX);
            let image = DynamicImage::from(image);
            if is_opaque { image.into_rgb8().into() } else { image }
        }
    }
}

/// Fits the image into the box; one that fits is left as it is.
fn scale(image: DynamicImage, width: u32, height: u32) -> DynamicImage {
    if image.width() <= width && image.height() <= height {
        return image;
    }
    let filter = FilterType::CatmullRom;
    let DynamicImage::ImageRgba8(mut pixels) = image else {
        return image.resize(width, height, filter);
    };
    // The filter mixes channels one by one: without this, the colour that transparent
    // pixels happen to have would bleed into their neighbours.
    premultiply(&mut pixels);
    let mut pixels = DynamicImage::from(pixels).resize(width, height, filter).into_rgba8();
    unpremultiply(&mut pixels);
    pixels.into()
}

fn premultiply(image: &mut RgbaImage) {
    for Rgba([r, g, b, a]) in image.pixels_mut() {
        for channel in [r, g, b] {
            *channel = mul(*channel, *a);
        }
    }
}

fn unpremultiply(image: &mut RgbaImage) {
    for Rgba([r, g, b, a]) in image.pixels_mut() {
        for channel in [r, g, b] {
            let value = (u32::from(*channel) * 255 + u32::from(*a) / 2)
                .checked_div(u32::from(*a))
                .unwrap_or(0);
            *channel = u8::try_from(value).unwrap_or(u8::MAX);
        }
    }
}

/// On white.
fn flatten(image: DynamicImage) -> DynamicImage {
    let DynamicImage::ImageRgba8(pixels) = image else { return image };
    let mut flat = RgbImage::new(pixels.width(), pixels.height());
    for (to, Rgba([r, g, b, a])) in flat.pixels_mut().zip(pixels.pixels()) {
        let white = u8::MAX - a;
        to.0 = [r, g, b].map(|channel| mul(*channel, *a).saturating_add(white));
    }
    flat.into()
}

/// The product of two parts of 255.
fn mul(a: u8, b: u8) -> u8 {
    u8::try_from((u32::from(a) * u32::from(b) + 127) / 255).unwrap_or(u8::MAX)
}

fn png(image: &DynamicImage) -> ImageResult<Vec<u8>> {
    let mut bytes = Vec::new();
    image.write_with_encoder(PngEncoder::new_with_quality(
        &mut bytes,
        CompressionType::Default,
        PngFilter::Adaptive,
    ))?;
    Ok(bytes)
}
