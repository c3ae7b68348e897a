//! The little arithmetic that a decoder needs, on plain slices.
//!
//! Every number is computed from its own row alone and every sum is taken in one fixed order. So a row's result does
//! not depend, not even in its last bit, on how many rows are computed with it: a prompt may be read at once, in
//! pieces or on top of a cached prefix, and the answer stays the same. For a model this small, loops that the
//! compiler vectorises are also faster than a tensor library.

/// So many sums are taken side by side: enough to fill the vector registers of any CPU.
const LANES: usize = 16;

/// A linear layer, stored so that applying it reads memory in order.
pub(crate) struct Matrix {
    inputs: usize,
    outputs: usize,
    /// For each group of [`LANES`] outputs, in turn: for each input, what it adds to them.
    panels: Vec<[f32; LANES]>,
}

impl Matrix {
    /// From one row of `inputs` numbers per output, as checkpoints store linear layers. None if the outputs cannot be
    /// taken [`LANES`] at a time.
    pub(crate) fn new(stored: &[f32], inputs: usize) -> Option<Self> {
        let outputs = stored.len() / inputs;
        if outputs * inputs != stored.len() || !outputs.is_multiple_of(LANES) {
            return None;
        }
        let weight =
            |first: usize, input: usize| std::array::from_fn(|lane| stored[(first + lane) * inputs + input]);
        let panel = |first: usize| (0..inputs).map(move |input| weight(first, input));
        Some(Self { inputs, outputs, panels: (0..outputs).step_by(LANES).flat_map(panel).collect() })
    }

    /// Applies the layer to each row of `rows`.
    pub(crate) fn apply(&self, rows: &[f32]) -> Vec<f32> {
        let mut results = vec![0.0; rows.len() / self.inputs * self.outputs];
        // A panel fits the first-level cache, so it is used for every row before the next one is touched.
        for (index, panel) in self.panels.chunks_exact(self.inputs).enumerate() {
            for (row, result) in rows.chunks_exact(self.inputs).zip(results.chunks_exact_mut(self.outputs)) {
                let mut sums = [0.0; LANES];
                for (&input, weights) in row.iter().zip(panel) {
                    sums = std::array::from_fn(|lane| sums[lane] + input * weights[lane]);
                }
                result[index * LANES..][..LANES].copy_from_slice(&sums);
            }
        }
        results
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
    use super::*;

    #[test]
    fn a_matrix_applies_each_stored_row_to_each_given_row() {
        let stored: Vec<f32> = (0..32).map(|number: u8| f32::from(number)).collect();
        let matrix = Matrix::new(&stored, 2).unwrap();
        let results = matrix.apply(&[1.0, 0.0, 1.0, 10.0]);
        assert_eq!(&results[..3], [0.0, 2.0, 4.0]);
        assert_eq!(&results[16..19], [10.0, 32.0, 54.0]);
    }

    #[test]
    fn a_matrix_of_an_odd_size_is_refused() {
        assert!(Matrix::new(&[0.0; 34], 2).is_none());
        assert!(Matrix::new(&[0.0; 33], 2).is_none());
    }

    #[test]
    fn shares_add_up_to_one_however_large_the_scores() {
        let mut scores = [1000.0, 1000.0, -1000.0];
        softmax(&mut scores);
        assert_eq!(&scores[..], [0.5, 0.5, 0.0]);
    }
}
