//! The transformer's tensor operations, on plain slices of `f32`.
//!
//! Every sum is computed in a fixed order. So however a prompt is divided, the result is the same to the last bit.

/// Number of sums that are computed in parallel: enough for the vector registers of any CPU. The widths of all layers
/// are multiples of this number.
pub(crate) const LANES: usize = 16;
/// Number of rows that are computed together, so that weights are loaded only once for all of them.
const ROWS: usize = 4;
/// This is added to a row's mean square, so that a row of zeros causes no division by zero. The value is from
/// `weights/config.json`.
const EPSILON: f32 = 1e-5;

pub(crate) struct Linear {
    inputs: usize,
    outputs: usize,
    /// The weights, ordered first by groups of [`LANES`] outputs, then by input. In this order, memory is read
    /// sequentially.
    panels: Vec<[f32; LANES]>,
}

impl Linear {
    /// Reorders weights that are stored as one row of `inputs` numbers for each output.
    pub(crate) fn new(weights: &[f32], inputs: usize) -> Self {
        let groups = weights.chunks_exact(LANES * inputs);
        let panel = |group: &[f32], input| std::array::from_fn(|lane| group[lane * inputs + input]);
        let panels = groups.flat_map(|group| (0..inputs).map(move |input| panel(group, input))).collect();
        Self { inputs, outputs: weights.len() / inputs, panels }
    }

    /// Applies the layer to each row of `rows`.
    pub(crate) fn forward(&self, rows: &[f32]) -> Vec<f32> {
        let rows: Vec<&[f32]> = rows.chunks_exact(self.inputs).collect();
        let (blocks, rest) = rows.as_chunks::<ROWS>();
        let mut results = vec![0.0; rows.len() * self.outputs];
        for (group, panel) in self.panels.chunks_exact(self.inputs).enumerate() {
            let blocks = blocks.iter().flat_map(|block| products(panel, *block));
            let rest = rest.iter().flat_map(|&row| products(panel, [row]));
            for (row, sums) in blocks.chain(rest).enumerate() {
                results[row * self.outputs + group * LANES..][..LANES].copy_from_slice(&sums);
            }
        }
        results
    }

    pub(crate) fn row(&self, output: usize) -> impl Iterator<Item = f32> {
        let panel = &self.panels[output / LANES * self.inputs..][..self.inputs];
        panel.iter().map(move |lanes| lanes[output % LANES])
    }
}

#[inline]
fn products<const N: usize>(panel: &[[f32; LANES]], rows: [&[f32]; N]) -> [[f32; LANES]; N] {
    let mut sums = [[0.0; LANES]; N];
    for (input, weights) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            add_products(sums, weights, &[row[input]; LANES]);
        }
    }
    sums
}

/// Adds products to sums. A loop over the index is fast in every profile, whereas iterators are three times slower in
/// `release`.
#[inline]
fn add_products(sums: &mut [f32; LANES], left: &[f32; LANES], right: &[f32; LANES]) {
    for lane in 0..LANES {
        sums[lane] += left[lane] * right[lane];
    }
}

/// Normalises each row to a root mean square of 1, and multiplies it by `weight`.
pub(crate) fn rms_norm(rows: &[f32], weight: &[f32]) -> Vec<f32> {
    let mut results = Vec::with_capacity(rows.len());
    for row in rows.chunks_exact(weight.len()) {
        #[expect(clippy::cast_precision_loss, reason = "a row has some hundred numbers")]
        let mean = dot(row, row) / row.len() as f32;
        let scale = 1.0 / (mean + EPSILON).sqrt();
        results.extend(row.iter().zip(weight).map(|(number, weight)| number * scale * weight));
    }
    results
}

pub(crate) fn add(numbers: &mut [f32], other: &[f32]) {
    for (number, other) in numbers.iter_mut().zip(other) {
        *number += other;
    }
}

/// Applies SiLU to `gates` and multiplies by `values` (SwiGLU).
pub(crate) fn swiglu(gates: &mut [f32], values: &[f32]) {
    for (gate, value) in gates.iter_mut().zip(values) {
        *gate = *gate / (1.0 + (-*gate).exp()) * value;
    }
}

/// Returns the dot product of two slices whose length is a multiple of [`LANES`].
#[inline]
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for (left, right) in left.as_chunks::<LANES>().0.iter().zip(right.as_chunks::<LANES>().0) {
        add_products(&mut sums, left, right);
    }
    sums.iter().sum()
}

/// Writes the weighted sum of `rows`, whose width is a multiple of [`LANES`].
#[inline]
pub(crate) fn weighted_sum<'a>(
    sums: &mut [f32],
    rows: &(impl Iterator<Item = &'a [f32]> + Clone),
    weights: &[f32],
) {
    for (index, lanes) in sums.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
        let mut sum = [0.0; LANES];
        for (row, &weight) in rows.clone().zip(weights) {
            add_products(&mut sum, &row.as_chunks().0[index], &[weight; LANES]);
        }
        *lanes = sum;
    }
}

/// Converts each row of logits to probabilities, in place.
pub fn softmax(logits: &mut [f32]) {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for logit in &mut *logits {
        *logit = (*logit - highest).exp();
        sum += *logit;
    }
    for logit in logits {
        *logit /= sum;
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

    use super::*;

    #[test]
    fn a_linear_layer_multiplies_each_stored_row_by_each_given_row() {
        let numbers = |count: usize| -> Vec<f32> {
            (0..count).map(|place| f32::from((place * 7 % 64) as u8) - 32.0).collect()
        };
        // The last block of rows is incomplete.
        let (inputs, outputs, count) = (9, 32, 7);
        let (weights, rows) = (numbers(inputs * outputs), numbers(count * inputs));
        let layer = Linear::new(&weights, inputs);
        let results = layer.forward(&rows);
        for (row, results) in rows.chunks(inputs).zip(results.chunks(outputs)) {
            for (weights, result) in weights.chunks(inputs).zip(results) {
                let expected: f32 = weights.iter().zip(row).map(|(left, right)| left * right).sum();
                assert_eq!(result.to_bits(), expected.to_bits());
            }
        }
        assert!(layer.row(20).eq(weights[20 * inputs..][..inputs].iter().copied()));
    }

    #[test]
    fn probabilities_add_up_to_one_however_large_the_logits() {
        let mut logits = [1000.0, 1000.0, -1000.0];
        softmax(&mut logits);
        assert_eq!(&logits[..], [0.5, 0.5, 0.0]);
    }
}
