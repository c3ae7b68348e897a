//! The forms in which files store numbers, widened to f32.

use std::borrow::Cow;

use super::LoadError;
use crate::arithmetic::{Precision, half};

/// A stored tensor.
pub(crate) struct Tensor {
    pub(crate) kind: Kind,
    /// The last one varies fastest.
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Cow<'static, [u8]>,
}

/// In what form numbers are stored. The quantised ones keep a block of numbers as small integers that share a scale; their
/// layout is that of ggml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q8_0,
    Q4K,
    Q5K,
    Q6K,
}

impl Kind {
    /// So many numbers share a block.
    pub(crate) const fn block(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q4_0 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// So many bytes hold a block.
    pub(crate) const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 2 + 16,
            Self::Q8_0 => 2 + 32,
            Self::Q4K => 4 + 12 + 128,
            Self::Q5K => 4 + 12 + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// How precisely a large model keeps these numbers. An f16 tells quantised ones apart.
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Bf16 => Precision::Bf16,
            Self::F16 | Self::Q4_0 | Self::Q8_0 | Self::Q4K | Self::Q5K | Self::Q6K => Precision::F16,
        }
    }

    fn widen(self, bytes: &[u8]) -> Vec<f32> {
        match self {
            Self::F32 => bytes.as_chunks::<4>().0.iter().map(|&number| f32::from_le_bytes(number)).collect(),
            Self::F16 => halves(bytes, half::from_f16),
            Self::Bf16 => halves(bytes, half::from_bf16),
            Self::Q4_0 => self.blocks(bytes, q4_0),
            Self::Q8_0 => self.blocks(bytes, q8_0),
            Self::Q4K => self.blocks(bytes, q4_k),
            Self::Q5K => self.blocks(bytes, q5_k),
            Self::Q6K => self.blocks(bytes, q6_k),
        }
    }

    fn blocks(self, bytes: &[u8], widen: impl Fn(&[u8], &mut Vec<f32>)) -> Vec<f32> {
        let mut numbers = Vec::with_capacity(bytes.len() / self.block_bytes() * self.block());
        bytes.chunks_exact(self.block_bytes()).for_each(|block| widen(block, &mut numbers));
        numbers
    }
}

impl Tensor {
    /// What a file says is a tensor, if there are as many bytes as its shape needs.
    pub(crate) fn new(
        name: &str,
        kind: Kind,
        shape: Vec<usize>,
        bytes: Cow<'static, [u8]>,
    ) -> Result<Self, LoadError> {
        let fits = size(kind, &shape) == Some(bytes.len());
        if fits { Ok(Self { kind, shape, bytes }) } else { Err(LoadError::misshapen(name)) }
    }

    /// The numbers of `count` rows from `first` on. A list is one row.
    pub(crate) fn rows(&self, first: usize, count: usize) -> Vec<f32> {
        let length = self.shape.last().copied().unwrap_or(1);
        let bytes = length / self.kind.block() * self.kind.block_bytes();
        self.kind.widen(&self.bytes[first * bytes..][..count * bytes])
    }
}

/// So many bytes hold a tensor of this shape. None if its rows end within a block.
pub(crate) fn size(kind: Kind, shape: &[usize]) -> Option<usize> {
    let numbers = shape.iter().try_fold(1_usize, |product, &length| product.checked_mul(length))?;
    let rows_fit = shape.last().is_none_or(|row| row.is_multiple_of(kind.block()));
    rows_fit.then_some(numbers / kind.block())?.checked_mul(kind.block_bytes())
}

fn f16(bytes: &[u8], place: usize) -> f32 {
    half::from_f16(u16::from_le_bytes([bytes[place], bytes[place + 1]]))
}

fn halves(bytes: &[u8], widen: impl Fn(u16) -> f32) -> Vec<f32> {
    bytes.as_chunks::<2>().0.iter().map(|&bits| widen(u16::from_le_bytes(bits))).collect()
}

/// A scale; then 32 numbers.
fn q8_0(block: &[u8], numbers: &mut Vec<f32>) {
    let scale = f16(block, 0);
    numbers.extend(block[2..].iter().map(|&byte| scale * f32::from(byte.cast_signed())));
}

/// A scale; then 16 bytes, whose lower halves are the first 16 numbers.
fn q4_0(block: &[u8], numbers: &mut Vec<f32>) {
    let scale = f16(block, 0);
    let number = |nibble: u8| scale * (f32::from(nibble) - 8.0);
    numbers.extend(block[2..].iter().map(|byte| number(byte & 15)));
    numbers.extend(block[2..].iter().map(|byte| number(byte >> 4)));
}

/// The scale and offset of each of the 8 parts of a block of 256: 6 bits each, packed into 12 bytes.
fn part_scale(packed: &[u8], part: usize) -> (f32, f32) {
    let (scale, offset) = if part < 4 {
        (packed[part] & 63, packed[part + 4] & 63)
    } else {
        let (low, high) = (packed[part + 4], part - 4);
        ((low & 15) | (packed[high] >> 6 << 4), (low >> 4) | (packed[high + 4] >> 6 << 4))
    };
    (f32::from(scale), f32::from(offset))
}

/// Two scales, the scales of the parts, then 128 bytes: every 32 of them hold two parts in their halves.
fn q4_k(block: &[u8], numbers: &mut Vec<f32>) {
    let (scale, offset, packed) = (f16(block, 0), f16(block, 2), &block[4..16]);
    for (pair, bytes) in block[16..].chunks_exact(32).enumerate() {
        for (half, shift) in [0, 4].into_iter().enumerate() {
            let (part, shifted) = part_scale(packed, 2 * pair + half);
            let number = |byte: &u8| scale * part * f32::from((byte >> shift) & 15) - offset * shifted;
            numbers.extend(bytes.iter().map(number));
        }
    }
}

/// As `q4_k`, with a fifth bit for each number: bit `n` of the 32 bytes before them belongs to part `n`.
fn q5_k(block: &[u8], numbers: &mut Vec<f32>) {
    let (scale, offset, packed) = (f16(block, 0), f16(block, 2), &block[4..16]);
    let high = &block[16..48];
    for (pair, bytes) in block[48..].chunks_exact(32).enumerate() {
        for (half, shift) in [0, 4].into_iter().enumerate() {
            let index = 2 * pair + half;
            let (part, shifted) = part_scale(packed, index);
            let number = |(byte, high): (&u8, &u8)| {
                let level = ((byte >> shift) & 15) | ((high >> index & 1) << 4);
                scale * part * f32::from(level) - offset * shifted
            };
            numbers.extend(bytes.iter().zip(high).map(number));
        }
    }
}

/// In each half of the block: 64 bytes of lower halves, 32 bytes of upper pairs of bits, 8 scales; one scale over all.
fn q6_k(block: &[u8], numbers: &mut Vec<f32>) {
    let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
    let scale = f16(block, 208);
    for half in 0..2 {
        let (low, high, scales) =
            (&low[64 * half..][..64], &high[32 * half..][..32], &scales[8 * half..][..8]);
        for quarter in 0..4 {
            numbers.extend((0..32).map(|place| {
                let four = (low[place + 32 * (quarter % 2)] >> (4 * (quarter / 2))) & 15;
                let two = (high[place] >> (2 * quarter)) & 3;
                let level = f32::from(four | (two << 4)) - 32.0;
                scale * f32::from(scales[2 * quarter + place / 16].cast_signed()) * level
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// A row in each form, with the numbers that ggml's own tools read in it.
    #[derive(Deserialize)]
    struct Recorded {
        kind: String,
        bytes: Vec<u8>,
        numbers: Vec<f32>,
    }

    #[test]
    fn quantised_numbers_are_those_that_ggml_reads() {
        let recorded: Vec<Recorded> =
            serde_json::from_str(include_str!("../../tests/reference/quantised.json")).unwrap();
        let kinds = [Kind::Q4_0, Kind::Q8_0, Kind::Q4K, Kind::Q5K, Kind::Q6K];
        let names = ["Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"];
        for (kind, name) in kinds.into_iter().zip(names) {
            let case = recorded.iter().find(|case| case.kind == name).unwrap();
            let tensor = Tensor { kind, shape: vec![case.numbers.len()], bytes: case.bytes.clone().into() };
            for (number, expected) in tensor.rows(0, 1).iter().zip(&case.numbers) {
                assert!((number - expected).abs() <= 1e-6 * expected.abs(), "{name}: {number} {expected}");
            }
        }
    }
}
