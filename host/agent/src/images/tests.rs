#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Cursor;

use image::codecs::gif::GifEncoder;
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{
    DynamicImage, Frame, GenericImageView as _, ImageBuffer, ImageFormat, Luma, Rgb, RgbImage,
    Rgba, RgbaImage,
};
use proptest::prelude::*;

use super::*;

const FORMATS: [ImageFormat; 4] =
    [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::Gif, ImageFormat::WebP];
const TOLERANCE: u8 = 8;

pub(super) fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    image.write_to(&mut Cursor::new(&mut bytes), format).unwrap();
    bytes
}

pub(super) fn flat(width: u32, height: u32) -> DynamicImage {
    RgbImage::from_pixel(width, height, Rgb([200, 30, 30])).into()
}

fn noise(width: u32, height: u32, seed: u64) -> RgbImage {
    let mut pixels = vec![0; width as usize * height as usize * 3];
    fastrand::Rng::with_seed(seed).fill(&mut pixels);
    RgbImage::from_raw(width, height, pixels).unwrap()
}

/// A PNG that is as large as its pixels.
fn stored(image: &DynamicImage) -> Vec<u8> {
    let mut bytes = Vec::new();
    let encoder = PngEncoder::new_with_quality(
        &mut bytes,
        CompressionType::Uncompressed,
        FilterType::NoFilter,
    );
    image.write_with_encoder(encoder).unwrap();
    bytes
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    })
}

fn size_of(width: u32, height: u32) -> Size {
    Size { width, height }
}

/// What is sent is within the limits and is what it says; gives its pixels.
fn check_sent(changed: &Changed) -> DynamicImage {
    assert!(changed.size.is_within(MAX_SIDE), "{}", changed.size);
    assert!(changed.bytes.len().div_ceil(3) * 4 < 4_500_000, "{}", changed.bytes.len());
    assert_eq!(image_type(&changed.bytes), Some(changed.mime_type));
    let image = decode::decode(&changed.bytes, changed.mime_type).unwrap();
    assert_eq!((image.width(), image.height()), (changed.size.width, changed.size.height));
    // Nothing is left to do.
    assert!(fit(&changed.bytes, true).unwrap().changed.is_none());
    image
}

fn close(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.abs_diff(*b) <= TOLERANCE)
}

#[test]
fn what_is_within_the_limits_stays_as_it_is() {
    for format in FORMATS {
        for (width, height) in [(1, 1), (2_000, 2_000), (2_000, 3)] {
            let bytes = encoded(&flat(width, height), format);
            for auto_resize in [true, false] {
                let fitted = fit(&bytes, auto_resize).unwrap();
                assert!(fitted.changed.is_none(), "{format:?} {width}x{height}");
                assert_eq!(fitted.mime_type, format.to_mime_type());
                assert_eq!(fitted.original, size_of(width, height));
            }
        }
    }
}

#[test]
fn what_is_too_wide_or_high_is_scaled() {
    let cases = [
        ((2_001, 10), (2_000, 10)),
        ((10, 2_001), (10, 2_000)),
        ((4_000, 600), (2_000, 300)),
        ((300, 2_400), (250, 2_000)),
        ((6_000, 1), (2_000, 1)),
    ];
    for format in FORMATS {
        for ((width, height), expected) in cases {
            let fitted = fit(&encoded(&flat(width, height), format), true).unwrap();
            assert_eq!(fitted.original, size_of(width, height));
            let changed = fitted.changed.unwrap();
            assert_eq!(changed.size, size_of(expected.0, expected.1), "{format:?}");
            let mime_type = match format {
                ImageFormat::Jpeg => "image/jpeg",
                _ => "image/png",
            };
            assert_eq!(changed.mime_type, mime_type, "{format:?}");
            let Rgba([r, g, b, a]) = check_sent(&changed).get_pixel(0, 0);
            assert!(close(&[r, g, b, a], &[200, 30, 30, 255]), "{format:?} {:?}", [r, g, b, a]);
        }
    }
}

#[test]
fn every_kind_of_pixel_is_scaled() {
    let images: [DynamicImage; 4] = [
        ImageBuffer::from_pixel(2_400, 20, Luma([0x8080_u16])).into(),
        ImageBuffer::from_pixel(2_400, 20, image::LumaA([128_u8, 255])).into(),
        ImageBuffer::from_pixel(2_400, 20, Rgb([0x8080_u16; 3])).into(),
        ImageBuffer::from_pixel(2_400, 20, Rgba([0x8080_u16, 0x8080, 0x8080, 0xffff])).into(),
    ];
    for image in images {
        let changed = fit(&encoded(&image, ImageFormat::Png), true).unwrap().changed.unwrap();
        assert_eq!((changed.size, changed.mime_type), (size_of(2_000, 17), "image/png"));
        let sent = check_sent(&changed);
        assert!(!sent.color().has_alpha(), "{:?}", image.color());
        let Rgba(pixel) = sent.get_pixel(1_000, 8);
        assert!(close(&pixel, &[128, 128, 128, 255]), "{:?} {pixel:?}", image.color());
    }
}

#[test]
fn too_many_bytes_are_encoded_anew() {
    // Badly compressed: as PNG, of the same size.
    let fitted = fit(&stored(&flat(1_200, 1_000)), true).unwrap();
    assert_eq!(fitted.changed.as_ref().map(|changed| changed.size), Some(fitted.original));
    let changed = fitted.changed.unwrap();
    assert_eq!(changed.mime_type, "image/png");
    assert!(changed.bytes.len() < 100_000);
    check_sent(&changed);
    // What no PNG holds: as JPEG. Noise is the worst there is.
    let fitted = fit(&stored(&noise(2_000, 2_000, 1).into()), true).unwrap();
    assert_eq!(fitted.changed.as_ref().map(|changed| changed.size), Some(fitted.original));
    let changed = fitted.changed.unwrap();
    assert_eq!(changed.mime_type, "image/jpeg");
    check_sent(&changed);
}

/// Opaque white on the left, nothing (in black) on the right, at a column that scaling
/// does not fall on.
fn half(width: u32, height: u32) -> RgbaImage {
    ImageBuffer::from_fn(width, height, |x, _| {
        if x < width / 2 + 1 { Rgba([255; 4]) } else { Rgba([0; 4]) }
    })
}

#[test]
fn alpha_is_kept_where_a_png_fits() {
    for format in [ImageFormat::Png, ImageFormat::WebP] {
        let bytes = encoded(&half(3_001, 100).into(), format);
        let changed = fit(&bytes, true).unwrap().changed.unwrap();
        assert_eq!(changed.mime_type, "image/png");
        let sent = check_sent(&changed).into_rgba8();
        assert_eq!(sent.get_pixel(10, 10), &Rgba([255; 4]));
        assert_eq!(sent.get_pixel(1_990, 10).0[3], 0);
        // Nothing of the black that is not to be seen comes into the edge.
        let mut edges = 0;
        for pixel in sent.pixels().filter(|pixel| pixel.0[3] > 8) {
            assert!(pixel.0[0] >= 250, "{pixel:?}");
            edges += u32::from(pixel.0[3] < 255);
        }
        assert!(edges > 0, "the edge is not where scaling falls on it");
    }
}

#[test]
fn alpha_is_flattened_on_white_where_it_does_not_fit() {
    let mut image = RgbaImage::new(1_100, 1_000);
    for (x, _, pixel) in image.enumerate_pixels_mut() {
        if x < 100 {
            *pixel = Rgba([0, 0, 0, 0]);
        } else {
            *pixel = Rgba(fastrand::u32(..).to_le_bytes());
        }
    }
    let changed = fit(&encoded(&image.into(), ImageFormat::Png), true).unwrap().changed.unwrap();
    assert_eq!(changed.mime_type, "image/jpeg");
    let Rgba(corner) = check_sent(&changed).get_pixel(40, 700);
    assert!(close(&corner, &[255; 4]), "{corner:?}");
}

#[test]
fn a_turned_photograph_is_set_upright() {
    let image: RgbImage = ImageBuffer::from_fn(3_000, 1_000, |x, _| {
        if x < 1_500 { Rgb([250, 0, 0]) } else { Rgb([0, 0, 250]) }
    });
    let plain = encoded(&image.into(), ImageFormat::Jpeg);
    // One entry, orientation (0x0112), 6: the left side is the top.
    let exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    let turned = [&plain[..2], b"\xff\xe1", &length, exif, &plain[2..]].concat();
    let fitted = fit(&turned, true).unwrap();
    assert_eq!(fitted.original, size_of(1_000, 3_000));
    let changed = fitted.changed.unwrap();
    assert_eq!(changed.size, size_of(667, 2_000));
    let sent = check_sent(&changed);
    assert!(close(&sent.get_pixel(300, 100).0, &[250, 0, 0, 255]));
    assert!(close(&sent.get_pixel(300, 1_900).0, &[0, 0, 250, 255]));
}

fn animated_gif(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = GifEncoder::new(&mut bytes);
    for colour in [[250, 0, 0, 255], [0, 0, 250, 255]] {
        let frame = RgbaImage::from_pixel(width.into(), height.into(), Rgba(colour));
        encoder.encode_frame(Frame::new(frame)).unwrap();
    }
    drop(encoder);
    bytes
}

fn animated_webp(width: u32, height: u32) -> Vec<u8> {
    let u24 = |value: u32| value.to_le_bytes()[..3].to_vec();
    let chunk = |name: &[u8], data: &[u8]| {
        let length = u32::try_from(data.len()).unwrap().to_le_bytes();
        [name, &length, data, &[0][..data.len() % 2]].concat()
    };
    let sides = [u24(width - 1), u24(height - 1)].concat();
    let mut body = b"WEBP".to_vec();
    body.extend(chunk(b"VP8X", &[&[0b10, 0, 0, 0][..], &sides].concat()));
    body.extend(chunk(b"ANIM", &[0; 6]));
    for colour in [[250, 0, 0], [0, 0, 250]] {
        let frame = RgbImage::from_pixel(width, height, Rgb(colour));
        let file = encoded(&frame.into(), ImageFormat::WebP);
        // The image's own chunk, behind the file's header.
        let data = [&[0; 6][..], &sides, &u24(100), &[0], &file[12..]].concat();
        body.extend(chunk(b"ANMF", &data));
    }
    chunk(b"RIFF", &body)
}

#[test]
fn of_an_animation_the_first_frame_is_sent_where_it_is_too_large() {
    type Animated = fn(u32, u32) -> Vec<u8>;
    let gif: Animated =
        |width, height| animated_gif(u16::try_from(width).unwrap(), u16::try_from(height).unwrap());
    for animated in [gif, animated_webp] {
        assert!(fit(&animated(20, 10), true).unwrap().changed.is_none());
        let changed = fit(&animated(2_400, 12), true).unwrap().changed.unwrap();
        assert_eq!((changed.size, changed.mime_type), (size_of(2_000, 10), "image/png"));
        let Rgba(pixel) = check_sent(&changed).get_pixel(1_000, 5);
        assert!(close(&pixel, &[250, 0, 0, 255]), "{pixel:?}");
    }
}

/// Small files that say that they are huge.
fn bombs() -> Vec<(Vec<u8>, Size)> {
    let mut png = encoded(&flat(1, 1), ImageFormat::Png);
    let side = 100_000_u32.to_be_bytes();
    png[16..20].copy_from_slice(&side);
    png[20..24].copy_from_slice(&side);
    let crc = crc32(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&crc);

    let mut jpeg = encoded(&flat(1, 1), ImageFormat::Jpeg);
    let frame = jpeg.windows(2).position(|two| two == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xff, 0x00, 0xff, 0x00]);

    let mut gif = encoded(&flat(1, 1), ImageFormat::Gif);
    gif[6..10].copy_from_slice(&[0xff; 4]);

    // Of a lossless image, 14 bits each follow a signature byte.
    let mut webp = encoded(&flat(1, 1), ImageFormat::WebP);
    webp[21..25].copy_from_slice(&(0x3ffe_u32 | 0x3ffe << 14).to_le_bytes());

    vec![
        (png, size_of(100_000, 100_000)),
        (jpeg, size_of(0xff00, 0xff00)),
        (gif, size_of(0xffff, 0xffff)),
        (webp, size_of(0x3fff, 0x3fff)),
    ]
}

#[test]
fn bombs_are_refused_by_their_size() {
    for (bytes, size) in bombs() {
        for auto_resize in [true, false] {
            let error = fit(&bytes, auto_resize).unwrap_err();
            assert_eq!(error, ImageError::TooManyPixels { size }, "{:?}", image_type(&bytes));
        }
    }
}

#[test]
fn what_cannot_be_decoded_is_refused() {
    let starts: [(&[u8], &str); 4] = [
        (b"\x89PNG\r\n\x1a\n\0\0", "image/png"),
        (b"\xff\xd8\xff\xe0\0", "image/jpeg"),
        (b"GIF89a\0\0", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ];
    let check = |bytes: &[u8], expected: &str| match fit(bytes, true).unwrap_err() {
        ImageError::Undecodable { mime_type, .. } => assert_eq!(mime_type, expected),
        error => panic!("{expected}: {error}"),
    };
    for (start, mime_type) in starts {
        check(start, mime_type);
    }
    // The end is missing.
    for format in [ImageFormat::Png, ImageFormat::Gif, ImageFormat::WebP] {
        let bytes = encoded(&noise(50, 50, 2).into(), format);
        check(&bytes[..bytes.len() / 2], format.to_mime_type());
    }
    for bytes in [&b""[..], b"BM....", b"<svg/>", b"hello", b"\xff\xd8"] {
        assert_eq!(fit(bytes, true).unwrap_err(), ImageError::NotAnImage);
    }
}

#[test]
fn without_resizing_large_images_are_refused() {
    let error = |image: &DynamicImage, format| fit(&encoded(image, format), false).unwrap_err();
    let wide = error(&flat(8_001, 10), ImageFormat::Png);
    assert!(matches!(wide, ImageError::TooWide { .. }));
    assert!(wide.to_string().contains("8001x10 pixels is larger than 8000x8000"), "{wide}");
    let large = error(&noise(1_300, 1_000, 3).into(), ImageFormat::Png);
    assert_eq!(large.to_string(), "the image is larger than 3750000 bytes; make a smaller copy");
    let fitted = fit(&encoded(&flat(2_001, 10), ImageFormat::Png), false).unwrap();
    assert!(fitted.changed.is_none());
}

/// Plain, noisy in a part, or noisy all over, with alpha or without.
fn any_image() -> impl Strategy<Value = DynamicImage> {
    let side = prop_oneof![1..100_u32, 1..2_100_u32, 2_000..6_001_u32];
    (side.clone(), side, 0.0..1.0_f64, any::<bool>(), any::<u64>()).prop_map(
        |(width, height, noisy, has_alpha, seed)| {
            let channels = if has_alpha { 4 } else { 3 };
            let mut pixels = vec![150; width as usize * height as usize * channels];
            // At most what is read of a file.
            let noisy_bytes = ((pixels.len() as f64 * noisy * noisy) as usize).min(20_000_000);
            fastrand::Rng::with_seed(seed).fill(&mut pixels[..noisy_bytes]);
            if has_alpha {
                RgbaImage::from_raw(width, height, pixels).unwrap().into()
            } else {
                RgbImage::from_raw(width, height, pixels).unwrap().into()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn whatever_goes_in_what_comes_out_is_within_the_limits(
        image in any_image(),
        format in prop::sample::select(FORMATS.to_vec()),
    ) {
        // A GIF's palette takes long to find.
        let format = match format {
            ImageFormat::Gif if image.width() * image.height() > 1_000_000 => ImageFormat::Png,
            format => format,
        };
        let image = if format == ImageFormat::Jpeg { image.into_rgb8().into() } else { image };
        let bytes = encoded(&image, format);
        let fitted = fit(&bytes, true).unwrap();
        prop_assert_eq!(fitted.original, size_of(image.width(), image.height()));
        match fitted.changed {
            Some(changed) => drop(check_sent(&changed)),
            None => {
                prop_assert!(fitted.original.is_within(2_000));
                prop_assert!(bytes.len().div_ceil(3) * 4 < 4_500_000);
            }
        }
    }
}

proptest! {
    #[test]
    fn broken_bytes_make_nothing_panic(
        format in prop::sample::select(FORMATS.to_vec()),
        wrong in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        kept in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let mut bytes = encoded(&noise(9, 7, 4).into(), format);
        for (at, byte) in wrong {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(kept.index(bytes.len()));
        }
        match fit(&bytes, true) {
            Err(ImageError::Undecodable { reason, .. }) => {
                prop_assert!(!reason.contains("panicked"));
            }
            Err(ImageError::NotAnImage | ImageError::TooManyPixels { .. }) | Ok(_) => {}
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
