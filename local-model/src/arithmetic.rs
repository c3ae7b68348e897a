//! The little arithmetic that a decoder needs, on plain slices.
//!
//! Every number is computed from its own row alone and every sum is taken in one fixed order. So a row's result does
//! not depend, not even in its last bit, on how many rows are computed with it: a prompt may be read at once, in
//! pieces or on top of a cached prefix, by any number of threads, and the answer stays the same. For small models, loops
//! that the compiler vectorises are also faster than a tensor library.

pub(crate) mod half;

use crate::threads::Threads;

/// So many sums are taken side by side: enough to fill the vector registers of any CPU.
const LANES: usize = 16;
/// So many rows are taken side by side, which read the stored numbers once.
const ROWS: usize = 4;

/// A linear layer, stored so that applying it reads memory in order.
pub(crate) struct Matrix {
    inputs: usize,
    outputs: usize,
    panels: Panels,
}

/// How precisely numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    F16,
    Bf16,
}

/// For each group of [`LANES`] outputs, in turn: for each input, what it adds to them.
enum Panels {
    F32(Vec<[f32; LANES]>),
    F16(Vec<[u16; LANES]>),
    Bf16(Vec<[u16; LANES]>),
}

impl Matrix {
    /// `rows` gives the stored rows from one on, one row of `inputs` numbers per output.
    pub(crate) fn new(
        inputs: usize,
        outputs: usize,
        precision: Precision,
        rows: impl Fn(usize, usize) -> Vec<f32>,
    ) -> Self {
        let groups = (0..outputs).step_by(LANES).map(|first| {
            let mut stored = rows(first, LANES.min(outputs - first));
            // Outputs that nobody asked for fill up the last group.
            stored.resize(LANES * inputs, 0.0);
            stored
        });
        let panels = match precision {
            Precision::F32 => Panels::F32(packed(groups, inputs, |number| number)),
            Precision::F16 => Panels::F16(packed(groups, inputs, half::to_f16)),
            Precision::Bf16 => Panels::Bf16(packed(groups, inputs, half::to_bf16)),
        };
        Self { inputs, outputs, panels }
    }

    /// Applies the layer to each row of `rows`.
    pub(crate) fn apply(&self, rows: &[f32], threads: &Threads) -> Vec<f32> {
        let count = rows.len() / self.inputs;
        let mut grouped = vec![0.0; count * self.outputs.next_multiple_of(LANES)];
        let products = grouped.len() * self.inputs;
        let size = count * LANES;
        let (inputs, rows) = (self.inputs, Rows { rows, width: self.inputs });
        match &self.panels {
            Panels::F32(panels) => threads.fill(&mut grouped, size, products, |group, sums| {
                add_up(&panels[group * inputs..][..inputs], |number| number, rows, sums);
            }),
            Panels::F16(panels) => threads.fill(&mut grouped, size, products, |group, sums| {
                add_up(&panels[group * inputs..][..inputs], half::from_f16, rows, sums);
            }),
            Panels::Bf16(panels) => threads.fill(&mut grouped, size, products, |group, sums| {
                add_up(&panels[group * inputs..][..inputs], half::from_bf16, rows, sums);
            }),
        }
        self.in_rows(grouped, count)
    }

    /// So many numbers each row becomes.
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// The stored row of one output.
    pub(crate) fn row(&self, output: usize) -> Vec<f32> {
        let (first, lane) = (output / LANES * self.inputs, output % LANES);
        match &self.panels {
            Panels::F32(panels) => panels[first..][..self.inputs].iter().map(|lanes| lanes[lane]).collect(),
            Panels::F16(panels) => {
                panels[first..][..self.inputs].iter().map(|lanes| half::from_f16(lanes[lane])).collect()
            }
            Panels::Bf16(panels) => {
                panels[first..][..self.inputs].iter().map(|lanes| half::from_bf16(lanes[lane])).collect()
            }
        }
    }

    /// From results by group of outputs, and row by row within it, to results by row.
    fn in_rows(&self, mut grouped: Vec<f32>, count: usize) -> Vec<f32> {
        if count == 1 {
            grouped.truncate(self.outputs);
            return grouped;
        }
        let mut results = vec![0.0; count * self.outputs];
        for (row, result) in results.chunks_exact_mut(self.outputs).enumerate() {
            for (group, part) in result.chunks_mut(LANES).enumerate() {
                let place = (group * count + row) * LANES;
                part.copy_from_slice(&grouped[place..place + part.len()]);
            }
        }
        results
    }
}

/// Rows of the same width, one after the other.
#[derive(Clone, Copy)]
struct Rows<'a> {
    rows: &'a [f32],
    width: usize,
}

impl<'a> Rows<'a> {
    fn get(self, index: usize) -> &'a [f32] {
        &self.rows[index * self.width..][..self.width]
    }
}

fn packed<T: Copy + Default>(
    groups: impl Iterator<Item = Vec<f32>>,
    inputs: usize,
    narrow: impl Fn(f32) -> T,
) -> Vec<[T; LANES]> {
    let mut panels = Vec::new();
    for stored in groups {
        let weight = |input| std::array::from_fn(|lane| narrow(stored[lane * inputs + input]));
        panels.extend((0..inputs).map(weight));
    }
    panels
}

/// What one panel makes of each row. Rows are taken together only to read the panel less often: each has its own sums.
#[inline]
fn add_up<T: Copy>(panel: &[[T; LANES]], widen: impl Fn(T) -> f32, rows: Rows<'_>, sums: &mut [f32]) {
    let (blocks, rest) = sums.as_chunks_mut::<{ ROWS * LANES }>();
    let mut next = 0;
    for block in blocks {
        let taken: [&[f32]; ROWS] = std::array::from_fn(|row| rows.get(next + row));
        let mut sums = [[0.0; LANES]; ROWS];
        for (input, weights) in panel.iter().enumerate() {
            let weights = weights.map(&widen);
            for (sums, row) in sums.iter_mut().zip(taken) {
                let input = row[input];
                *sums = std::array::from_fn(|lane| sums[lane] + input * weights[lane]);
            }
        }
        block.copy_from_slice(sums.as_flattened());
        next += ROWS;
    }
    for row in rest.chunks_exact_mut(LANES) {
        let mut sums = [0.0; LANES];
        for (&input, weights) in rows.get(next).iter().zip(panel) {
            let weights = weights.map(&widen);
            sums = std::array::from_fn(|lane| sums[lane] + input * weights[lane]);
        }
        row.copy_from_slice(&sums);
        next += 1;
    }
}

/// Scales each row of `gains.len()` numbers to a root mean square of one, then each number by its gain.
pub(crate) fn rms_norm(rows: &[f32], gains: &[f32], epsilon: f32) -> Vec<f32> {
    let mut results = Vec::with_capacity(rows.len());
    for row in rows.chunks_exact(gains.len()) {
        #[expect(clippy::cast_precision_loss, reason = "a row has some hundred numbers")]
        let mean = dot(row, row) / row.len() as f32;
        let scale = 1.0 / (mean + epsilon).sqrt();
        results.extend(row.iter().zip(gains).map(|(number, gain)| number * scale * gain));
    }
    results
}

/// Adds `more` to `numbers`, one by one.
pub(crate) fn add(numbers: &mut [f32], more: &[f32]) {
    for (number, more) in numbers.iter_mut().zip(more) {
        *number += more;
    }
}

/// Adds up `rows`, each times its weight, into `sums`, whose length is a multiple of [`LANES`].
#[inline]
pub(crate) fn weighted_sum<'a>(
    sums: &mut [f32],
    rows: &(impl Iterator<Item = &'a [f32]> + Clone),
    weights: &[f32],
) {
    for (index, lanes) in sums.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut sum = [0.0; LANES];
        for (row, &weight) in rows.clone().zip(weights) {
            let part = &row[index * LANES..][..LANES];
            sum = std::array::from_fn(|lane| sum[lane] + part[lane] * weight);
        }
        *lanes = sum;
    }
}

/// The gate of the network that follows attention: each of `gates` through SiLU, times its partner in `values`.
pub(crate) fn gate(gates: &mut [f32], values: &[f32]) {
    for (gate, value) in gates.iter_mut().zip(values) {
        *gate = *gate / (1.0 + (-*gate).exp()) * value;
    }
}

/// The sum of the products. Both slices are a multiple of [`LANES`] long.
#[inline]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for (left, right) in left.as_chunks::<LANES>().0.iter().zip(right.as_chunks::<LANES>().0) {
        sums = std::array::from_fn(|lane| sums[lane] + left[lane] * right[lane]);
    }
    sums.iter().sum()
}

/// Turns scores into shares that add up to one.
pub(crate) fn softmax(scores: &mut [f32]) {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for score in &mut *scores {
        *score = (*score - highest).exp();
        sum += *score;
    }
    for score in scores {
        *score /= sum;
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "the numbers are small"
    )]

    use super::*;

    /// A matrix of small whole numbers, which every precision holds exactly.
    fn matrix(inputs: usize, outputs: usize, precision: Precision) -> (Vec<f32>, Matrix) {
        let stored: Vec<f32> =
            (0..inputs * outputs).map(|place| f32::from((place * 7 % 64) as u8) - 32.0).collect();
        let matrix = Matrix::new(inputs, outputs, precision, |first, count| {
            stored[first * inputs..][..count * inputs].to_vec()
        });
        (stored, matrix)
    }

    #[test]
    fn a_matrix_applies_each_stored_row_to_each_given_row() {
        let threads = Threads::new(2).unwrap();
        for precision in [Precision::F32, Precision::F16, Precision::Bf16] {
            // The last group of outputs is not full, and the last block of rows neither.
            let (inputs, outputs, count) = (9, 21, 7);
            let (stored, matrix) = matrix(inputs, outputs, precision);
            let rows: Vec<f32> = (0..count * inputs).map(|place| f32::from((place % 5) as u8)).collect();
            let results = matrix.apply(&rows, &threads);
            for (row, results) in rows.chunks(inputs).zip(results.chunks(outputs)) {
                for (stored, result) in stored.chunks(inputs).zip(results) {
                    let expected: f32 = stored.iter().zip(row).map(|(left, right)| left * right).sum();
                    assert_eq!(result.to_bits(), expected.to_bits());
                }
            }
            assert_eq!(matrix.row(20), &stored[20 * inputs..]);
        }
    }

    #[test]
    fn neither_the_cut_nor_the_threads_change_a_bit() {
        let stored = |first: usize, count: usize| -> Vec<f32> {
            (first * 512..(first + count) * 512).map(|place| (place as f32).sin()).collect()
        };
        let matrix = Matrix::new(512, 512, Precision::F32, stored);
        let rows = stored(3, 10);
        let whole = matrix.apply(&rows, &Threads::new(3).unwrap());
        for size in [1, 3, 4, 10] {
            let threads = Threads::new(1).unwrap();
            let pieces: Vec<f32> =
                rows.chunks(size * 512).flat_map(|piece| matrix.apply(piece, &threads)).collect();
            assert!(pieces == whole);
        }
    }

    #[test]
    fn shares_add_up_to_one_however_large_the_scores() {
        let mut scores = [1000.0, 1000.0, -1000.0];
        softmax(&mut scores);
        assert_eq!(&scores[..], [0.5, 0.5, 0.0]);
    }
}
