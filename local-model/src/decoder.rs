//! The model itself: a network that reads tokens and scores every token of its vocabulary as the next one.

use crate::{
    arithmetic::{Matrix, add, dot, gate, rms_norm, softmax, weighted_sum},
    shape::Shape,
    threads::Threads,
    weights::{LoadError, Weights},
};

/// The trained network. It never changes: what belongs to one sequence is in its [`Past`].
pub(crate) struct Decoder {
    shape: Shape,
    parameters: usize,
    embeddings: Matrix,
    layers: Vec<Layer>,
    norm: Vec<f32>,
    /// From the last hidden state to one score per token; without one, the embeddings do it once more.
    head: Option<Matrix>,
    threads: Threads,
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

/// A sequence that is read on.
pub(crate) struct Part<'a> {
    /// At least one.
    pub(crate) tokens: &'a [u32],
    /// What comes before them; it grows by them.
    pub(crate) past: &'a mut Past,
}

/// What a row may look at: so many positions of this part.
struct Sight {
    part: usize,
    visible: usize,
}

struct Layer {
    attention_norm: Vec<f32>,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Matrix,
    /// Gains of each head's queries and keys.
    head_norms: Option<(Vec<f32>, Vec<f32>)>,
    mlp_norm: Vec<f32>,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
}

/// The cosine and sine of an angle.
type Angle = (f32, f32);

/// A linear layer that may add numbers of its own.
struct Linear {
    matrix: Matrix,
    bias: Option<Vec<f32>>,
}

impl Decoder {
    /// Loads a network for a vocabulary of so many tokens.
    pub(crate) fn load(shape: Shape, tokens: usize, weights: &mut Weights<'_>) -> Result<Self, LoadError> {
        if shape.rows < tokens {
            return Err(LoadError::Broken(format!(
                "there are {tokens} tokens, but {} embeddings",
                shape.rows
            )));
        }
        let embeddings = weights.first_rows("model.embed_tokens.weight", shape.width, shape.rows, tokens)?;
        let head = if shape.tied {
            weights.ignore("lm_head.weight");
            None
        } else {
            Some(weights.first_rows("lm_head.weight", shape.width, shape.rows, tokens)?)
        };
        let layers: Vec<Layer> =
            (0..shape.layers).map(|index| Layer::load(weights, &shape, index)).collect::<Result<_, _>>()?;
        let norm = weights.list("model.norm.weight", shape.width)?;
        weights.all_used()?;
        let parameters = weights.numbers();
        Ok(Self { shape, parameters, embeddings, layers, norm, head, threads: Threads::none() })
    }

    /// Prompt and answer together hold at most so many tokens.
    pub(crate) fn context(&self) -> usize {
        self.shape.context
    }

    /// Bounds what prompt and answer together hold.
    pub(crate) fn limit_context(&mut self, most: usize) {
        self.shape.context = self.shape.context.min(most);
    }

    /// Spreads large layers over other threads.
    pub(crate) fn spread(&mut self, threads: Threads) {
        self.threads = threads;
    }

    /// So many numbers were trained.
    pub(crate) fn parameters(&self) -> usize {
        self.parameters
    }

    /// Reads one sequence on, as [`read_side_by_side`](Self::read_side_by_side) does several.
    #[cfg(test)]
    pub(crate) fn read(&self, tokens: &[u32], past: &mut Past) -> Vec<f32> {
        self.read_side_by_side(&mut [Part { tokens, past }]).remove(0)
    }

    /// Reads several sequences on and scores, for each, the candidates for its next token. Neither the others nor reading
    /// in pieces change its scores, not even in the last bit: together they only fetch the model's numbers less often.
    pub(crate) fn read_side_by_side(&self, parts: &mut [Part<'_>]) -> Vec<Vec<f32>> {
        let epsilon = self.shape.epsilon;
        let mut rows = Vec::new();
        let mut angles = Vec::new();
        for part in &mut *parts {
            part.past.layers.resize_with(self.layers.len(), LayerPast::default);
            rows.extend(part.tokens.iter().flat_map(|&token| self.embeddings.row(token as usize)));
            angles.extend(self.angles(part.past.positions, part.tokens.len()));
        }
        for index in 0..self.layers.len() {
            let layer = &self.layers[index];
            let attended =
                self.attend(index, &rms_norm(&rows, &layer.attention_norm, epsilon), &angles, parts);
            add(&mut rows, &attended);
            let thought = layer.think(&rms_norm(&rows, &layer.mlp_norm, epsilon), &self.threads);
            add(&mut rows, &thought);
        }
        let mut ends = Vec::new();
        let mut rows = rows.chunks_exact(self.shape.width);
        for part in parts {
            part.past.positions += part.tokens.len();
            ends.extend_from_slice(rows.nth(part.tokens.len() - 1).unwrap_or_default());
        }
        let head = self.head.as_ref().unwrap_or(&self.embeddings);
        let scores = head.apply(&rms_norm(&ends, &self.norm, epsilon), &self.threads);
        scores.chunks_exact(head.outputs()).map(<[f32]>::to_vec).collect()
    }

    /// By how much the pairs of a head are turned at `count` positions from `first` on.
    fn angles(&self, first: usize, count: usize) -> Vec<Angle> {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a context has fewer positions than an f32 tells apart"
        )]
        let at = |position: usize| self.shape.speeds.iter().map(move |speed| position as f32 * speed);
        (first..first + count).flat_map(at).map(|angle| (angle.cos(), angle.sin())).collect()
    }

    /// Lets each row look at itself and at all positions before it in its sequence, whose past grows by the rows' keys and
    /// values.
    fn attend(&self, index: usize, rows: &[f32], angles: &[Angle], parts: &mut [Part<'_>]) -> Vec<f32> {
        let (shape, layer) = (&self.shape, &self.layers[index]);
        let mut queries = layer.query.apply(rows, &self.threads);
        let mut keys = layer.key.apply(rows, &self.threads);
        if let Some((of_queries, of_keys)) = &layer.head_norms {
            queries = rms_norm(&queries, of_queries, shape.epsilon);
            keys = rms_norm(&keys, of_keys, shape.epsilon);
        }
        turn(&mut queries, angles, shape.heads, shape.head_width);
        turn(&mut keys, angles, shape.groups, shape.head_width);
        let values = layer.value.apply(rows, &self.threads);
        let sights = remember(index, parts, &keys, &values, shape.groups * shape.head_width);

        let mut mixed = vec![0.0; queries.len()];
        let width = shape.heads * shape.head_width;
        let products = sights.iter().map(|sight| 2 * width * sight.visible).sum();
        let parts = &*parts;
        self.threads.fill(&mut mixed, width, products, |row, mixed| {
            let Sight { part, visible } = sights[row];
            self.look(&queries[row * width..][..width], &parts[part].past.layers[index], visible, mixed);
        });
        layer.output.apply(&mixed, &self.threads)
    }

    /// One row's attention to the first `visible` positions: for each head, the values there, weighted by how well
    /// the keys there match the query. Several heads share one group of keys and values.
    fn look(&self, query: &[f32], held: &LayerPast, visible: usize, mixed: &mut [f32]) {
        let Shape { heads, groups, head_width: width, .. } = self.shape;
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
    fn load(weights: &mut Weights<'_>, shape: &Shape, index: usize) -> Result<Self, LoadError> {
        let Shape { width, inner, head_width, .. } = *shape;
        let (queries, keys) = (shape.heads * head_width, shape.groups * head_width);
        let name = |part: &str| format!("model.layers.{index}.{part}.weight");
        let mut linear = |part: &str, outputs| -> Result<Linear, LoadError> {
            let bias = format!("model.layers.{index}.{part}.bias");
            Ok(Linear {
                matrix: weights.matrix(&name(part), width, outputs)?,
                bias: weights.optional_list(&bias, outputs)?,
            })
        };
        let (query, key, value) = (
            linear("self_attn.q_proj", queries)?,
            linear("self_attn.k_proj", keys)?,
            linear("self_attn.v_proj", keys)?,
        );
        let mut head_norms = None;
        if shape.normed_heads {
            let mut norm = |part: &str| weights.list(&name(part), head_width);
            head_norms = Some((norm("self_attn.q_norm")?, norm("self_attn.k_norm")?));
        }
        Ok(Self {
            attention_norm: weights.list(&name("input_layernorm"), width)?,
            query,
            key,
            value,
            output: weights.matrix(&name("self_attn.o_proj"), queries, width)?,
            head_norms,
            mlp_norm: weights.list(&name("post_attention_layernorm"), width)?,
            gate: weights.matrix(&name("mlp.gate_proj"), width, inner)?,
            up: weights.matrix(&name("mlp.up_proj"), width, inner)?,
            down: weights.matrix(&name("mlp.down_proj"), inner, width)?,
        })
    }

    /// The gated network that follows attention, row by row.
    fn think(&self, rows: &[f32], threads: &Threads) -> Vec<f32> {
        let mut gates = self.gate.apply(rows, threads);
        gate(&mut gates, &self.up.apply(rows, threads));
        self.down.apply(&gates, threads)
    }
}

impl Linear {
    fn apply(&self, rows: &[f32], threads: &Threads) -> Vec<f32> {
        let mut results = self.matrix.apply(rows, threads);
        if let Some(bias) = &self.bias {
            results.chunks_exact_mut(bias.len()).for_each(|row| add(row, bias));
        }
        results
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

/// Adds the rows' keys and values to one layer of their pasts, and says what each row may look at.
fn remember(index: usize, parts: &mut [Part<'_>], keys: &[f32], values: &[f32], width: usize) -> Vec<Sight> {
    let mut sights = Vec::new();
    for (number, part) in parts.iter_mut().enumerate() {
        let (first, count) = (sights.len(), part.tokens.len());
        let rows = first * width..(first + count) * width;
        let held = &mut part.past.layers[index];
        held.keys.extend_from_slice(&keys[rows.clone()]);
        held.values.extend_from_slice(&values[rows]);
        let before = part.past.positions;
        sights.extend((1..=count).map(|row| Sight { part: number, visible: before + row }));
    }
    sights
}

/// Turns each head of each row by the angles of its position. A head's pairs are its first half and its second.
fn turn(rows: &mut [f32], angles: &[Angle], heads: usize, width: usize) {
    let pairs = width / 2;
    for (row, angles) in rows.chunks_exact_mut(heads * width).zip(angles.chunks_exact(pairs)) {
        for head in row.chunks_exact_mut(width) {
            let (left, right) = head.split_at_mut(pairs);
            for ((left, right), (cos, sin)) in left.iter_mut().zip(right).zip(angles) {
                (*left, *right) = (*left * cos - *right * sin, *right * cos + *left * sin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Model, reference};

    #[test]
    fn the_likeliest_tokens_are_those_that_pytorch_finds() {
        let Model { decoder, vocabulary, .. } = Model::shipped().unwrap();
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
        let decoder = Model::shipped().unwrap().decoder;
        let tokens: Vec<u32> = (0..300).map(|number| number * 37 % 1000).collect();
        let whole = decoder.read(&tokens, &mut Past::default());
        for size in [1, 7, 64, 299] {
            let mut past = Past::default();
            let pieces = tokens.chunks(size).map(|piece| decoder.read(piece, &mut past));
            assert_eq!(pieces.last().unwrap(), whole);
        }
    }

    #[test]
    fn who_is_read_beside_others_is_read_as_alone_to_the_last_bit() {
        let decoder = Model::shipped().unwrap().decoder;
        let tokens: Vec<u32> = (0..90).map(|number| number * 37 % 1000).collect();
        let (mut alone, mut together) =
            ([(); 3].map(|()| Past::default()), [(); 3].map(|()| Past::default()));
        let cuts = [0..40, 40..41, 41..90];
        for step in 0..3 {
            let taken: Vec<&[u32]> =
                (0..3).map(|number| &tokens[cuts[(step + number) % 3].clone()]).collect();
            let expected: Vec<Vec<f32>> =
                taken.iter().zip(&mut alone).map(|(tokens, past)| decoder.read(tokens, past)).collect();
            let mut parts: Vec<Part<'_>> =
                taken.iter().zip(&mut together).map(|(&tokens, past)| Part { tokens, past }).collect();
            assert!(decoder.read_side_by_side(&mut parts) == expected);
        }
    }
}
