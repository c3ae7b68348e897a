//! The model itself: a Llama that reads tokens and scores every token of its vocabulary as the next one.

use crate::{
    arithmetic::{Matrix, add, dot, gate, rms_norm, softmax, weighted_sum},
    weights::{LoadError, Shape, Weights},
};

/// The trained network. It never changes: what belongs to one sequence is in its [`Past`].
pub(crate) struct Decoder {
    shape: Shape,
    embeddings: Vec<f32>,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// From the last hidden state to one score per token: the embeddings once more, as the two are tied.
    head: Matrix,
    rotations: Rotations,
}

/// Keys and values of the positions that one sequence has behind it.
#[derive(Clone, Default)]
pub(crate) struct Past {
    positions: usize,
    layers: Vec<LayerPast>,
}

#[derive(Clone, Default)]
struct LayerPast {
    keys: Vec<f32>,
    values: Vec<f32>,
}

struct Layer {
    attention_norm: Vec<f32>,
    query: Matrix,
    key: Matrix,
    value: Matrix,
    output: Matrix,
    mlp_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

/// Rotary position embedding: cosines and sines by position and pair of numbers.
struct Rotations {
    pairs: usize,
    angles: Vec<(f32, f32)>,
}

impl Decoder {
    /// The model that is shipped in the program.
    pub(crate) fn shipped() -> Result<Self, LoadError> {
        let (shape, weights) = (Shape::shipped()?, Weights::shipped()?);
        let embeddings = "model.embed_tokens.weight";
        Ok(Self {
            embeddings: weights.numbers(embeddings)?,
            layers: (0..shape.num_hidden_layers)
                .map(|index| Layer::load(&weights, &shape, index))
                .collect::<Result<_, _>>()?,
            norm: weights.numbers("model.norm.weight")?,
            head: weights.matrix(embeddings, shape.hidden_size, shape.vocab_size)?,
            rotations: Rotations::new(&shape),
            shape,
        })
    }

    /// Prompt and answer together hold at most so many tokens.
    pub(crate) fn context(&self) -> usize {
        self.shape.max_position_embeddings
    }

    /// Reads `tokens`, at least one, after `past`, which grows by them, and scores the candidates for the next one.
    /// Reading in pieces gives the same scores as reading at once, to the last bit.
    pub(crate) fn read(&self, tokens: &[u32], past: &mut Past) -> Vec<f32> {
        let Shape { hidden_size: width, rms_norm_eps: epsilon, .. } = self.shape;
        past.layers.resize_with(self.layers.len(), LayerPast::default);

        let mut rows: Vec<f32> = tokens.iter().flat_map(|&token| self.embedding(token)).copied().collect();
        for (layer, held) in self.layers.iter().zip(&mut past.layers) {
            let attended =
                self.attend(layer, &rms_norm(&rows, &layer.attention_norm, epsilon), past.positions, held);
            add(&mut rows, &attended);
            let thought = layer.think(&rms_norm(&rows, &layer.mlp_norm, epsilon));
            add(&mut rows, &thought);
        }
        past.positions += tokens.len();
        let last = &rows[rows.len() - width..];
        self.head.apply(&rms_norm(last, &self.norm, epsilon))
    }

    fn embedding(&self, token: u32) -> &[f32] {
        &self.embeddings[token as usize * self.shape.hidden_size..][..self.shape.hidden_size]
    }

    /// Lets each row look at itself and at all positions before it; keys and values of the rows are added to `held`.
    fn attend(&self, layer: &Layer, rows: &[f32], before: usize, held: &mut LayerPast) -> Vec<f32> {
        let shape = &self.shape;
        let mut queries = layer.query.apply(rows);
        let mut keys = layer.key.apply(rows);
        self.rotations.turn(&mut queries, before, shape.num_attention_heads);
        self.rotations.turn(&mut keys, before, shape.num_key_value_heads);
        held.keys.append(&mut keys);
        held.values.append(&mut layer.value.apply(rows));

        let mut mixed = vec![0.0; queries.len()];
        let width = shape.num_attention_heads * shape.head_dim;
        for (index, (query, mixed)) in
            queries.chunks_exact(width).zip(mixed.chunks_exact_mut(width)).enumerate()
        {
            self.look(query, held, before + index + 1, mixed);
        }
        layer.output.apply(&mixed)
    }

    /// One row's attention to the first `visible` positions: for each head, the values there, weighted by how well
    /// the keys there match the query. Several heads share one group of keys and values.
    fn look(&self, query: &[f32], held: &LayerPast, visible: usize, mixed: &mut [f32]) {
        let Shape { num_attention_heads: heads, num_key_value_heads: groups, head_dim: width, .. } =
            self.shape;
        #[expect(clippy::cast_precision_loss, reason = "a head is some dozens of numbers wide")]
        let scale = 1.0 / (width as f32).sqrt();
        let mut shares = Vec::with_capacity(visible);
        for (head, (query, mixed)) in query.chunks_exact(width).zip(mixed.chunks_exact_mut(width)).enumerate()
        {
            let group = head * groups / heads * width..(head * groups / heads + 1) * width;
            shares.clear();
            let keys = held.keys.chunks_exact(groups * width).take(visible);
            shares.extend(keys.map(|key| dot(query, &key[group.clone()]) * scale));
            softmax(&mut shares);
            let values = held.values.chunks_exact(groups * width).map(|value| &value[group.clone()]);
            weighted_sum(mixed, &values, &shares);
        }
    }
}

impl Layer {
    fn load(weights: &Weights, shape: &Shape, index: usize) -> Result<Self, LoadError> {
        let width = shape.hidden_size;
        let queries = shape.num_attention_heads * shape.head_dim;
        let keys = shape.num_key_value_heads * shape.head_dim;
        let inner = shape.intermediate_size;
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        let matrix = |part: &str, inputs, outputs| weights.matrix(&name(part), inputs, outputs);
        Ok(Self {
            attention_norm: weights.numbers(&name("input_layernorm"))?,
            query: matrix("self_attn.q_proj", width, queries)?,
            key: matrix("self_attn.k_proj", width, keys)?,
            value: matrix("self_attn.v_proj", width, keys)?,
            output: matrix("self_attn.o_proj", queries, width)?,
            mlp_norm: weights.numbers(&name("post_attention_layernorm"))?,
            gate: matrix("mlp.gate_proj", width, inner)?,
            up: matrix("mlp.up_proj", width, inner)?,
            down: matrix("mlp.down_proj", inner, width)?,
        })
    }

    /// The gated network that follows attention, row by row.
    fn think(&self, rows: &[f32]) -> Vec<f32> {
        let mut gates = self.gate.apply(rows);
        gate(&mut gates, &self.up.apply(rows));
        self.down.apply(&gates)
    }
}

impl Past {
    /// So many tokens have been read.
    pub(crate) fn positions(&self) -> usize {
        self.positions
    }

    /// A copy of the first `positions`, for another sequence that begins with the same tokens.
    pub(crate) fn prefix(&self, positions: usize) -> Self {
        let cut = |numbers: &[f32]| numbers[..numbers.len() / self.positions.max(1) * positions].to_vec();
        let layers =
            self.layers.iter().map(|layer| LayerPast { keys: cut(&layer.keys), values: cut(&layer.values) });
        Self { positions, layers: layers.collect() }
    }
}

impl Rotations {
    #[expect(clippy::cast_precision_loss, reason = "head widths and positions are small")]
    fn new(shape: &Shape) -> Self {
        let pairs = shape.head_dim / 2;
        let speed = |pair: usize| shape.rope_theta.powf(-((2 * pair) as f32 / shape.head_dim as f32));
        let speeds: Vec<f32> = (0..pairs).map(speed).collect();
        let at = |position: usize| speeds.iter().map(move |speed| position as f32 * speed);
        let angles = (0..shape.max_position_embeddings).flat_map(at).map(|angle| (angle.cos(), angle.sin()));
        Self { pairs, angles: angles.collect() }
    }

    /// Turns each head of each row by the angles of its position. A head's pairs are its first half and its second.
    fn turn(&self, rows: &mut [f32], first_position: usize, heads: usize) {
        let width = 2 * self.pairs;
        let positions = self.angles[first_position * self.pairs..].chunks_exact(self.pairs);
        for (row, angles) in rows.chunks_exact_mut(heads * width).zip(positions) {
            for head in row.chunks_exact_mut(width) {
                let (left, right) = head.split_at_mut(self.pairs);
                for ((left, right), (cos, sin)) in left.iter_mut().zip(right).zip(angles) {
                    (*left, *right) = (*left * cos - *right * sin, *right * cos + *left * sin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reference, vocabulary::Vocabulary};

    #[test]
    fn the_likeliest_tokens_are_those_that_pytorch_finds() {
        let (decoder, vocabulary) = (Decoder::shipped().unwrap(), Vocabulary::shipped().unwrap());
        for case in reference::cases() {
            let prompt = vocabulary.encode(&case.prompt).unwrap();
            assert_eq!(prompt.len(), case.prompt_tokens);
            let mut past = Past::default();
            let mut scores = decoder.read(&prompt, &mut past);
            for token in case.answer_tokens {
                assert!(
                    scores.iter().all(|&score| score <= scores[token as usize]),
                    "in the answer to {}",
                    case.prompt
                );
                scores = decoder.read(&[token], &mut past);
            }
        }
    }

    #[test]
    fn pieces_are_read_as_the_whole_is_to_the_last_bit() {
        let decoder = Decoder::shipped().unwrap();
        let tokens: Vec<u32> = (0..300).map(|number| number * 37 % 1000).collect();
        let whole = decoder.read(&tokens, &mut Past::default());
        for size in [1, 7, 64, 299] {
            let mut past = Past::default();
            let pieces = tokens.chunks(size).map(|piece| decoder.read(piece, &mut past));
            assert_eq!(pieces.last().unwrap(), whole);
        }
    }
}
