//! Changes to the bytes of a component: blind ones, and ones that keep to its sections so
//! that they get past the first look.

use std::ops::Range;

use fastrand::Rng;

/// Of the binary format: what comes before the first section.
const PREAMBLE_BYTES: usize = 8;

/// Numbers that stand for sizes and counts, in LEB128, from none to as many as fit.
const SIZES: [&[u8]; 6] = [
    &[0x00],
    &[0x7f],
    &[0x80, 0x80, 0x04],
    &[0xff, 0xff, 0xff, 0xff, 0x07],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
];

/// One of `seeds` with a few changes.
pub(crate) fn mutate(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[rng.usize(..seeds.len())].clone();
    for _ in 0..rng.usize(1..4) {
        change(rng, &mut bytes, seeds);
    }
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    // The preamble is looked at first of all: hardly anything is worth a change there.
    let from = if rng.u8(..40) == 0 { 0 } else { PREAMBLE_BYTES };
    if bytes.len() <= from + 16 {
        bytes.extend_from_slice(&[0; 32]);
    }
    let at = rng.usize(from..bytes.len() - 10);
    match rng.u8(..10) {
        0..2 => (0..rng.usize(1..9)).for_each(|_| {
            let at = rng.usize(from..bytes.len());
            bytes[at] ^= 1 << rng.u8(..8);
        }),
        2 => bytes.truncate(at),
        3 => {
            let size = SIZES[rng.usize(..SIZES.len())];
            bytes[at..at + size.len()].copy_from_slice(size);
        }
        4 => {
            let other = &seeds[rng.usize(..seeds.len())];
            let end = (at + rng.usize(1..2_000)).min(bytes.len()).min(other.len());
            if at < end {
                bytes[at..end].copy_from_slice(&other[at..end]);
            }
        }
        5 => {
            let noise: Vec<u8> = (0..rng.usize(1..64)).map(|_| rng.u8(..)).collect();
            bytes.splice(at..at, noise);
        }
        6 => {
            let end = (at + rng.usize(1..5_000)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => change_sections(rng, bytes, seeds),
    }
}

fn change_sections(rng: &mut Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let mut parts: Vec<Vec<u8>> =
        sections(bytes).into_iter().map(|range| bytes[range].to_vec()).collect();
    if parts.len() < 2 {
        return;
    }
    let at = rng.usize(..parts.len());
    match rng.u8(..5) {
        0 => {
            let other = rng.usize(..parts.len());
            parts.swap(at, other);
        }
        1 => drop(parts.remove(at)),
        2 => parts.insert(rng.usize(..=parts.len()), parts[at].clone()),
        3 => {
            let other = &seeds[rng.usize(..seeds.len())];
            let of_other = sections(other);
            parts[at] = other[of_other[rng.usize(..of_other.len())].clone()].to_vec();
        }
        // A byte of a small section: the types, imports and exports.
        _ => {
            let small: Vec<_> = (0..parts.len()).filter(|at| parts[*at].len() < 4_000).collect();
            if let Some(at) = rng.choice(small) {
                let byte = rng.usize(..parts[at].len());
                parts[at][byte] = rng.u8(..);
            }
        }
    }
    bytes.truncate(PREAMBLE_BYTES);
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
}

/// The sections, headers included, up to the first that does not fit.
fn sections(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut at = PREAMBLE_BYTES;
    while let Some((header, size)) = bytes.get(at + 1..).and_then(leb128) {
        let end = at + 1 + header + size;
        if end > bytes.len() {
            break;
        }
        all.push(at..end);
        at = end;
    }
    all
}

/// How many bytes the number takes, and the number.
fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut number = 0;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        number |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((index + 1, number));
        }
    }
    None
}
