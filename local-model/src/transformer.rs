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

/// Trained network. It never changes: the state of a sequence is in its [`KvCache`].
pub(crate) struct Transformer {
    config: Config,
    /// Token embeddings, which also compute the logits (tied weights).
    embeddings: Linear,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// Rotary frequencies: the angle by which each pair of a head's numbers turns from one position to the next.
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

/// Keys and values of the positions of one sequence that were computed.
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

/// Tokens of one sequence that are computed in a batch.
pub(crate) struct BatchItem<'a> {
    /// New tokens, at least one.
    pub(crate) tokens: &'a [u32],
    /// Cache of the tokens before them, which grows by them.
    pub(crate) cache: &'a mut KvCache,
}

/// Positions that one row of a batch attends to: its own and all before it in its sequence.
struct CausalSpan {
    item: usize,
    length: usize,
}

/// Cosine and sine of a rotation.
type Rotation = (f32, f32);

impl Transformer {
    /// Loads the network from the contents of `config.json` and its weights.
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

    /// Computes the logits after the last token of each sequence. They are the same to the last bit whatever else is in the
    /// batch, and however a sequence is cut into batches: a batch only fetches the weights less often.
    pub(crate) fn forward(&self, batch: &mut [BatchItem<'_>]) -> Vec<Vec<f32>> {
        let epsilon = self.config.rms_norm_eps;
        let (mut hidden, mut rotations) = (Vec::new(), Vec::new());
        for item in &mut *batch {
            item.cache.layers.resize_with(self.layers.len(), LayerCache::default);
            hidden.extend(item.tokens.iter().flat_map(|&token| self.embeddings.row(token as usize)));
            rotations.extend(self.rotations(item.cache.length, item.tokens.len()));
        }
        for (index, layer) in self.layers.iter().enumerate() {
            let normed = rms_norm(&hidden, &layer.attention_norm, epsilon);
            add(&mut hidden, &self.attention(index, &normed, &rotations, batch));
            let normed = rms_norm(&hidden, &layer.mlp_norm, epsilon);
            add(&mut hidden, &layer.mlp(&normed));
        }
        let mut last = Vec::new();
        let mut rows = hidden.chunks_exact(self.config.hidden_size);
        for item in batch {
            item.cache.length += item.tokens.len();
            last.extend_from_slice(rows.nth(item.tokens.len() - 1).unwrap_or_default());
        }
        let logits = self.embeddings.forward(&rms_norm(&last, &self.norm, epsilon));
        logits.chunks_exact(self.embeddings.outputs()).map(<[f32]>::to_vec).collect()
    }

    /// Rotations of the pairs of a head at `count` positions from `first` on.
    fn rotations(&self, first: usize, count: usize) -> Vec<Rotation> {
        #[expect(clippy::cast_precision_loss, reason = "a context has some thousand positions")]
        let at = |position| self.inverse_frequencies.iter().map(move |frequency| position as f32 * frequency);
        (first..first + count).flat_map(at).map(|angle| (angle.cos(), angle.sin())).collect()
    }

    /// Attention of one layer for all rows of a batch, whose caches grow by the rows' keys and values.
    fn attention(
        &self,
        index: usize,
        rows: &[f32],
        rotations: &[Rotation],
        batch: &mut [BatchItem<'_>],
    ) -> Vec<f32> {
        let (config, layer) = (&self.config, &self.layers[index]);
        let mut queries = layer.query.forward(rows);
        let mut keys = layer.key.forward(rows);
        apply_rope(&mut queries, rotations, layer.query.outputs(), config.head_dim);
        apply_rope(&mut keys, rotations, layer.key.outputs(), config.head_dim);
        let values = layer.value.forward(rows);
        let spans = append(index, batch, &keys, &values, layer.key.outputs());

        let width = layer.query.outputs();
        let mut mixed = vec![0.0; queries.len()];
        let rows = queries.chunks_exact(width).zip(mixed.chunks_exact_mut(width));
        for ((query, mixed), CausalSpan { item, length }) in rows.zip(spans) {
            self.attend(query, &batch[item].cache.layers[index], length, mixed);
        }
        layer.output.forward(&mixed)
    }

    /// Attention of one row to the first `length` positions. Several query heads share one key-value head.
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

impl KvCache {
    /// Count of cached positions.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Copy of the first `length` positions, for another sequence that begins with the same tokens.
    pub(crate) fn prefix(&self, length: usize) -> Self {
        let cut = |numbers: &[f32]| numbers[..numbers.len() / self.length.max(1) * length].to_vec();
        let cut = |layer: &LayerCache| LayerCache { keys: cut(&layer.keys), values: cut(&layer.values) };
        Self { length, layers: self.layers.iter().map(cut).collect() }
    }
}

/// Appends the keys and values of a batch to one layer of its caches, and returns the span of each row.
fn append(
    index: usize,
    batch: &mut [BatchItem<'_>],
    keys: &[f32],
    values: &[f32],
    width: usize,
) -> Vec<CausalSpan> {
    let mut spans = Vec::new();
    for (number, item) in batch.iter_mut().enumerate() {
        let rows = spans.len() * width..(spans.len() + item.tokens.len()) * width;
        let layer = &mut item.cache.layers[index];
        layer.keys.extend_from_slice(&keys[rows.clone()]);
        layer.values.extend_from_slice(&values[rows]);
        let before = item.cache.length;
        spans.extend((1..=item.tokens.len()).map(|row| CausalSpan { item: number, length: before + row }));
    }
    spans
}

/// Rotary position embedding: rotates each head of each row. A pair is a number of a head's first half and its partner in
/// the second.
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
impl Transformer {
    /// Computes one sequence alone.
    pub(crate) fn read(&self, tokens: &[u32], cache: &mut KvCache) -> Vec<f32> {
        self.forward(&mut [BatchItem { tokens, cache }]).remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Model, reference};

    #[test]
    fn the_likeliest_tokens_are_those_of_pytorch() {
        let Model { transformer, .. } = Model::shipped().unwrap();
        for case in reference::cases() {
            let mut cache = KvCache::default();
            let mut logits = transformer.read(&case.prompt_ids, &mut cache);
            for token in case.answer_tokens {
                assert!(logits.iter().all(|&logit| logit <= logits[token as usize]), "{}", case.prompt);
                logits = transformer.read(&[token], &mut cache);
            }
        }
    }

    #[test]
    fn chunks_give_the_logits_of_the_whole_to_the_last_bit() {
        let transformer = Model::shipped().unwrap().transformer;
        let tokens: Vec<u32> = (0..300).map(|number| number * 37 % 1000).collect();
        let whole = transformer.read(&tokens, &mut KvCache::default());
        for size in [1, 7, 64, 299] {
            let mut cache = KvCache::default();
            let chunks = tokens.chunks(size).map(|chunk| transformer.read(chunk, &mut cache));
            assert_eq!(chunks.last().unwrap(), whole);
        }
    }

    #[test]
    fn a_batch_gives_each_sequence_the_logits_that_it_has_alone() {
        let transformer = Model::shipped().unwrap().transformer;
        let tokens: Vec<u32> = (0..90).map(|number| number * 37 % 1000).collect();
        let cuts = [0..40, 40..41, 41..90];
        let mut caches: [KvCache; 3] = Default::default();
        let mut alone = caches.clone();
        for step in 0..3 {
            let taken = [0, 1, 2].map(|number| &tokens[cuts[(step + number) % 3].clone()]);
            let pairs = taken.into_iter().zip(&mut alone);
            let expected: Vec<_> = pairs.map(|(tokens, cache)| transformer.read(tokens, cache)).collect();
            let pairs = taken.into_iter().zip(&mut caches);
            let mut batch: Vec<_> = pairs.map(|(tokens, cache)| BatchItem { tokens, cache }).collect();
            assert!(transformer.forward(&mut batch) == expected);
        }
    }
}
