//! The transformer: a decoder of the Llama architecture that computes logits for the next token. It is a separate crate
//! so that only its arithmetic has to be optimised in an otherwise unoptimised build.

use safetensors::SafeTensors;

mod arithmetic;

pub use arithmetic::softmax;
use arithmetic::{Linear, add, dot, rms_norm, swiglu, weighted_sum};

// Sizes of the shipped network, as in `weights/config.json`. All other sizes follow from its tensors.
/// Maximum number of tokens in prompt and answer together.
pub const CONTEXT_TOKENS: usize = 2048;
const LAYERS: usize = 6;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_WIDTH: usize = 48;
const ROPE_THETA: f32 = 10_000.0;

/// The trained network. A [`KvCache`] has the state of a sequence.
pub struct Transformer {
    /// Token embeddings, which also compute the logits (tied weights).
    embeddings: Linear,
    layers: Vec<Layer>,
    norm: Vec<f32>,
}

struct Layer {
    attention_norm: Vec<f32>,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    mlp_norm: Vec<f32>,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// Keys and values for the computed positions in a sequence.
#[derive(Default)]
pub struct KvCache {
    length: usize,
    layers: [LayerCache; LAYERS],
}

#[derive(Default)]
struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

impl KvCache {
    /// Forgets all positions but the first `length`.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
        for LayerCache { keys, values } in &mut self.layers {
            keys.truncate(length * KV_HEADS * HEAD_WIDTH);
            values.truncate(length * KV_HEADS * HEAD_WIDTH);
        }
    }
}

impl Transformer {
    /// Loads the shipped network, which takes a few milliseconds.
    pub fn shipped() -> anyhow::Result<Self> {
        let weights = SafeTensors::deserialize(include_bytes!("../../weights/model.safetensors"))?;
        Ok(Self {
            embeddings: linear(&weights, "model.embed_tokens")?,
            layers: (0..LAYERS).map(|index| Layer::read(&weights, index)).collect::<anyhow::Result<_>>()?,
            norm: vector(&weights, "model.norm")?,
        })
    }

    /// Computes the logits after the last of `tokens`, which must not be empty and follow the positions in `cache`. The
    /// logits are the same to the last bit however a sequence is divided.
    pub fn forward(&self, tokens: &[u32], cache: &mut KvCache) -> Vec<f32> {
        let mut hidden: Vec<f32> =
            tokens.iter().flat_map(|&token| self.embeddings.row(token as usize)).collect();
        let rotations = rotations(cache.length, tokens.len());
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            let normed = rms_norm(&hidden, &layer.attention_norm);
            add(&mut hidden, &layer.attention(&normed, &rotations, cache));
            let normed = rms_norm(&hidden, &layer.mlp_norm);
            let mut gates = layer.gate.forward(&normed);
            swiglu(&mut gates, &layer.up.forward(&normed));
            add(&mut hidden, &layer.down.forward(&gates));
        }
        cache.length += tokens.len();
        let last = &hidden[hidden.len() - self.norm.len()..];
        self.embeddings.forward(&rms_norm(last, &self.norm))
    }
}

impl Layer {
    fn read(weights: &SafeTensors<'_>, index: usize) -> anyhow::Result<Self> {
        let name = |part: &str| format!("model.layers.{index}.{part}");
        Ok(Self {
            attention_norm: vector(weights, &name("input_layernorm"))?,
            query: linear(weights, &name("self_attn.q_proj"))?,
            key: linear(weights, &name("self_attn.k_proj"))?,
            value: linear(weights, &name("self_attn.v_proj"))?,
            output: linear(weights, &name("self_attn.o_proj"))?,
            mlp_norm: vector(weights, &name("post_attention_layernorm"))?,
            gate: linear(weights, &name("mlp.gate_proj"))?,
            up: linear(weights, &name("mlp.up_proj"))?,
            down: linear(weights, &name("mlp.down_proj"))?,
        })
    }

    /// Computes the attention from each row to the positions up to its own. Adds the rows' keys and values to the
    /// cache.
    fn attention(&self, rows: &[f32], rotations: &[(f32, f32)], cache: &mut LayerCache) -> Vec<f32> {
        let before = cache.keys.len() / (KV_HEADS * HEAD_WIDTH);
        let mut queries = self.query.forward(rows);
        let mut keys = self.key.forward(rows);
        apply_rope(&mut queries, rotations, HEADS);
        apply_rope(&mut keys, rotations, KV_HEADS);
        cache.keys.append(&mut keys);
        cache.values.append(&mut self.value.forward(rows));

        let mut mixed = vec![0.0; queries.len()];
        let width = HEADS * HEAD_WIDTH;
        let rows = queries.chunks_exact(width).zip(mixed.chunks_exact_mut(width));
        for ((query, mixed), length) in rows.zip(before + 1..) {
            attend(query, cache, length, mixed);
        }
        self.output.forward(&mixed)
    }
}

fn vector(weights: &SafeTensors<'_>, name: &str) -> anyhow::Result<Vec<f32>> {
    let tensor = weights.tensor(&format!("{name}.weight"))?;
    // A bf16 is the upper half of an f32.
    let widen = |&[low, high]: &[u8; 2]| f32::from_le_bytes([0, 0, low, high]);
    Ok(tensor.data().as_chunks::<2>().0.iter().map(widen).collect())
}

fn linear(weights: &SafeTensors<'_>, name: &str) -> anyhow::Result<Linear> {
    let inputs = weights.tensor(&format!("{name}.weight"))?.shape()[1];
    Ok(Linear::new(&vector(weights, name)?, inputs))
}

/// Returns cosines and sines for rotating the pairs in a head, at `count` positions from `first` on.
#[expect(clippy::cast_precision_loss, reason = "there are some thousand positions at most")]
fn rotations(first: usize, count: usize) -> Vec<(f32, f32)> {
    let frequency = |pair| 1.0 / ROPE_THETA.powf((2 * pair) as f32 / HEAD_WIDTH as f32);
    let frequencies: Vec<f32> = (0..HEAD_WIDTH / 2).map(frequency).collect();
    let at = |position| frequencies.iter().map(move |frequency| position as f32 * frequency);
    (first..first + count).flat_map(at).map(|angle| (angle.cos(), angle.sin())).collect()
}

/// Computes the attention from a row to the first `length` positions. Several query heads share a key-value head.
fn attend(query: &[f32], cache: &LayerCache, length: usize, mixed: &mut [f32]) {
    #[expect(clippy::cast_precision_loss, reason = "a head is some dozens of numbers wide")]
    let scale = 1.0 / (HEAD_WIDTH as f32).sqrt();
    let mut weights = Vec::with_capacity(length);
    let heads = query.chunks_exact(HEAD_WIDTH).zip(mixed.chunks_exact_mut(HEAD_WIDTH));
    for (head, (query, mixed)) in heads.enumerate() {
        let first = head * KV_HEADS / HEADS * HEAD_WIDTH;
        let kv_head = first..first + HEAD_WIDTH;
        weights.clear();
        let keys = cache.keys.chunks_exact(KV_HEADS * HEAD_WIDTH).take(length);
        weights.extend(keys.map(|key| dot(query, &key[kv_head.clone()]) * scale));
        softmax(&mut weights);
        let values = cache.values.chunks_exact(KV_HEADS * HEAD_WIDTH).map(|value| &value[kv_head.clone()]);
        weighted_sum(mixed, &values, &weights);
    }
}

/// Rotates each head in each row (rotary position embedding). A pair consists of a number in a head's first half and
/// its partner in the second half.
fn apply_rope(rows: &mut [f32], rotations: &[(f32, f32)], heads: usize) {
    let pairs = HEAD_WIDTH / 2;
    for (row, rotations) in rows.chunks_exact_mut(heads * HEAD_WIDTH).zip(rotations.chunks_exact(pairs)) {
        for head in row.chunks_exact_mut(HEAD_WIDTH) {
            let (left, right) = head.split_at_mut(pairs);
            for ((left, right), (cos, sin)) in left.iter_mut().zip(right).zip(rotations) {
                (*left, *right) = (*left * cos - *right * sin, *right * cos + *left * sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn chunks_give_the_logits_of_the_whole_to_the_last_bit() {
        let transformer = Transformer::shipped().unwrap();
        let tokens: Vec<u32> = (0..300).map(|number| number * 37 % 1000).collect();
        let whole = transformer.forward(&tokens, &mut KvCache::default());
        for size in [1, 7, 64, 299] {
            let mut cache = KvCache::default();
            // Positions that were read and forgotten leave nothing behind.
            transformer.forward(&tokens[7..20], &mut cache);
            cache.truncate(0);
            let chunks = tokens.chunks(size).map(|chunk| transformer.forward(chunk, &mut cache));
            assert_eq!(chunks.last().unwrap(), whole);
            cache.truncate(100);
            assert_eq!(transformer.forward(&tokens[100..], &mut cache), whole);
        }
    }

    #[test]
    fn the_sizes_are_those_that_the_training_wrote() {
        let config: Value = serde_json::from_str(include_str!("../../weights/config.json")).unwrap();
        for (name, size) in [
            ("max_position_embeddings", CONTEXT_TOKENS),
            ("num_hidden_layers", LAYERS),
            ("num_attention_heads", HEADS),
            ("num_key_value_heads", KV_HEADS),
            ("head_dim", HEAD_WIDTH),
        ] {
            assert_eq!(config[name], size, "{name}");
        }
        assert_eq!(config["rope_theta"].as_f64(), Some(f64::from(ROPE_THETA)));
    }
}
