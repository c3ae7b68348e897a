//! The transformer: a decoder of the Llama architecture that computes logits for the next token.

use serde::Deserialize;

use crate::{
    nn::{Linear, add, dot, rms_norm, softmax, swiglu, weighted_sum},
    weights::Weights,
};

/// Sizes of the network, named as in `config.json`.
#[derive(Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    rope_theta: f32,
}

/// Trained network. The state of a sequence is kept in a [`KvCache`].
pub(crate) struct Transformer {
    config: Config,
    /// Token embeddings, which also compute the logits (tied weights).
    embeddings: Linear,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// Rotary frequencies: the angle by which each pair of a head's numbers turns from a position to the next.
    inverse_frequencies: Vec<f32>,
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

/// Keys and values of the computed positions of a sequence.
#[derive(Clone, Default)]
pub(crate) struct KvCache {
    length: usize,
    layers: Vec<LayerCache>,
}

#[derive(Clone, Default)]
struct LayerCache {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// Cosine and sine of a rotation.
type Rotation = (f32, f32);

impl Transformer {
    /// Loads the network from the contents of `config.json` and the weights.
    pub(crate) fn load(config: &[u8], weights: &Weights<'_>) -> anyhow::Result<Self> {
        let config: Config = serde_json::from_slice(config)?;
        let embeddings = weights.linear("model.embed_tokens", config.hidden_size, config.vocab_size)?;
        let layers = (0..config.num_hidden_layers).map(|index| Layer::load(weights, &config, index));
        let layers = layers.collect::<anyhow::Result<_>>()?;
        let norm = weights.vector("model.norm", config.hidden_size)?;
        #[expect(clippy::cast_precision_loss, reason = "a head is some dozens of numbers wide")]
        let frequency = |pair| 1.0 / config.rope_theta.powf((2 * pair) as f32 / config.head_dim as f32);
        let inverse_frequencies = (0..config.head_dim / 2).map(frequency).collect();
        Ok(Self { config, embeddings, layers, norm, inverse_frequencies })
    }

    /// Tokens that prompt and answer together may have.
    pub(crate) fn context(&self) -> usize {
        self.config.max_position_embeddings
    }

    /// Computes the logits after the last of `tokens`, never empty, which follow the positions in `cache`. The logits
    /// are the same to the last bit however a sequence is cut.
    pub(crate) fn forward(&self, tokens: &[u32], cache: &mut KvCache) -> Vec<f32> {
        let epsilon = self.config.rms_norm_eps;
        cache.layers.resize_with(self.layers.len(), LayerCache::default);
        let mut hidden: Vec<f32> =
            tokens.iter().flat_map(|&token| self.embeddings.row(token as usize)).collect();
        let rotations = self.rotations(cache.length, tokens.len());
        for (layer, cache) in self.layers.iter().zip(&mut cache.layers) {
            let normed = rms_norm(&hidden, &layer.attention_norm, epsilon);
            add(&mut hidden, &self.attention(layer, &normed, &rotations, cache));
            let normed = rms_norm(&hidden, &layer.mlp_norm, epsilon);
            add(&mut hidden, &layer.mlp(&normed));
        }
        cache.length += tokens.len();
        let last = &hidden[hidden.len() - self.config.hidden_size..];
        self.embeddings.forward(&rms_norm(last, &self.norm, epsilon))
    }

    /// Rotations of the pairs of a head at `count` positions from `first` on.
    fn rotations(&self, first: usize, count: usize) -> Vec<Rotation> {
        #[expect(clippy::cast_precision_loss, reason = "a context has some thousand positions")]
        let at = |position| self.inverse_frequencies.iter().map(move |frequency| position as f32 * frequency);
        (first..first + count).flat_map(at).map(|angle| (angle.cos(), angle.sin())).collect()
    }

    /// Attention of each row to the positions up to the row's own. The cache grows by the rows' keys and values.
    fn attention(
        &self,
        layer: &Layer,
        rows: &[f32],
        rotations: &[Rotation],
        cache: &mut LayerCache,
    ) -> Vec<f32> {
        let (head, width) = (self.config.head_dim, layer.query.outputs());
        let before = cache.keys.len() / layer.key.outputs();
        let mut queries = layer.query.forward(rows);
        let mut keys = layer.key.forward(rows);
        apply_rope(&mut queries, rotations, width, head);
        apply_rope(&mut keys, rotations, layer.key.outputs(), head);
        cache.keys.append(&mut keys);
        cache.values.append(&mut layer.value.forward(rows));

        let mut mixed = vec![0.0; queries.len()];
        let rows = queries.chunks_exact(width).zip(mixed.chunks_exact_mut(width));
        for ((query, mixed), length) in rows.zip(before + 1..) {
            self.attend(query, cache, length, mixed);
        }
        layer.output.forward(&mixed)
    }

    /// Attention of a row to the first `length` positions. Several query heads share a key-value head.
    fn attend(&self, query: &[f32], cache: &LayerCache, length: usize, mixed: &mut [f32]) {
        let Config { num_attention_heads: heads, num_key_value_heads: kv_heads, head_dim: width, .. } =
            self.config;
        #[expect(clippy::cast_precision_loss, reason = "a head is some dozens of numbers wide")]
        let scale = 1.0 / (width as f32).sqrt();
        let mut weights = Vec::with_capacity(length);
        let heads_of_row = query.chunks_exact(width).zip(mixed.chunks_exact_mut(width));
        for (head, (query, mixed)) in heads_of_row.enumerate() {
            let first = head * kv_heads / heads * width;
            let kv_head = first..first + width;
            weights.clear();
            let keys = cache.keys.chunks_exact(kv_heads * width).take(length);
            weights.extend(keys.map(|key| dot(query, &key[kv_head.clone()]) * scale));
            softmax(&mut weights);
            let values = cache.values.chunks_exact(kv_heads * width).map(|value| &value[kv_head.clone()]);
            weighted_sum(mixed, &values, &weights);
        }
    }
}

impl Layer {
    fn load(weights: &Weights<'_>, config: &Config, index: usize) -> anyhow::Result<Self> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let queries = config.num_attention_heads * config.head_dim;
        let keys = config.num_key_value_heads * config.head_dim;
        let name = |part: &str| format!("model.layers.{index}.{part}");
        Ok(Self {
            attention_norm: weights.vector(&name("input_layernorm"), hidden)?,
            query: weights.linear(&name("self_attn.q_proj"), hidden, queries)?,
            key: weights.linear(&name("self_attn.k_proj"), hidden, keys)?,
            value: weights.linear(&name("self_attn.v_proj"), hidden, keys)?,
            output: weights.linear(&name("self_attn.o_proj"), queries, hidden)?,
            mlp_norm: weights.vector(&name("post_attention_layernorm"), hidden)?,
            gate: weights.linear(&name("mlp.gate_proj"), hidden, inner)?,
            up: weights.linear(&name("mlp.up_proj"), hidden, inner)?,
            down: weights.linear(&name("mlp.down_proj"), inner, hidden)?,
        })
    }

    fn mlp(&self, rows: &[f32]) -> Vec<f32> {
        let mut gates = self.gate.forward(rows);
        swiglu(&mut gates, &self.up.forward(rows));
        self.down.forward(&gates)
    }
}

/// Rotates each head of each row (rotary position embedding). A pair is a number of a head's first half and its partner
/// in the second half.
fn apply_rope(rows: &mut [f32], rotations: &[Rotation], row_width: usize, head_width: usize) {
    let pairs = head_width / 2;
    for (row, rotations) in rows.chunks_exact_mut(row_width).zip(rotations.chunks_exact(pairs)) {
        for head in row.chunks_exact_mut(head_width) {
            let (left, right) = head.split_at_mut(pairs);
            for ((left, right), (cos, sin)) in left.iter_mut().zip(right).zip(rotations) {
                (*left, *right) = (*left * cos - *right * sin, *right * cos + *left * sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KvCache;
    use crate::model::Model;

    #[test]
    fn chunks_give_the_logits_of_the_whole_to_the_last_bit() {
        let transformer = Model::shipped().unwrap().transformer;
        let tokens: Vec<u32> = (0..300).map(|number| number * 37 % 1000).collect();
        let whole = transformer.forward(&tokens, &mut KvCache::default());
        for size in [1, 7, 64, 299] {
            let mut cache = KvCache::default();
            let chunks = tokens.chunks(size).map(|chunk| transformer.forward(chunk, &mut cache));
            assert_eq!(chunks.last().unwrap(), whole);
        }
    }
}
