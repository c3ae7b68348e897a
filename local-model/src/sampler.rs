//! Sampling: the choice of the next token from the model's logits.

use std::{cmp::Ordering, collections::HashMap};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::{nn::softmax, tokenizer::Tokenizer};

/// Sampling parameters, with the meaning that the OpenAI API gives each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampling {
    /// At 0 the likeliest token is always chosen.
    pub(crate) temperature: f32,
    /// Probability that the considered tokens reach together, the likeliest first.
    pub(crate) top_p: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
    /// Addends to the logits of single tokens.
    pub(crate) bias: Vec<(u32, f32)>,
    /// Seed of the random choices, which are the same for the same seed.
    pub(crate) seed: u64,
}

/// Sampling of one completion.
pub(crate) struct Sampler {
    sampling: Sampling,
    rng: StdRng,
    /// Number of times that each token was chosen.
    counts: HashMap<u32, f32>,
}

/// Logarithm of a token's probability, with the members that the OpenAI API gives it.
#[derive(Serialize)]
pub(crate) struct TokenLogprob {
    token: String,
    logprob: f32,
    bytes: Vec<u8>,
    /// Logprobs of the likeliest tokens, beside a chosen token.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_logprobs: Option<Vec<TokenLogprob>>,
}

impl Sampler {
    /// Makes the sampler of one of a request's completions, which differ under one seed.
    pub(crate) fn new(sampling: Sampling, completion: usize) -> Self {
        let rng = StdRng::seed_from_u64(sampling.seed.wrapping_add(completion as u64));
        Self { sampling, rng, counts: HashMap::new() }
    }

    /// Chooses the next token, never one with a logit of negative infinity.
    pub(crate) fn sample(&mut self, mut logits: Vec<f32>) -> u32 {
        for &(token, bias) in &self.sampling.bias {
            logits[token as usize] += bias;
        }
        for (&token, count) in &self.counts {
            let penalty = self.sampling.frequency_penalty * count + self.sampling.presence_penalty;
            logits[token as usize] -= penalty;
        }
        let token = if self.sampling.temperature == 0.0 { argmax(&logits) } else { self.draw(logits) };
        *self.counts.entry(token).or_default() += 1.0;
        token
    }

    fn draw(&mut self, mut logits: Vec<f32>) -> u32 {
        // Less the highest, so that none becomes infinite, however low the temperature.
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for logit in &mut logits {
            *logit = (*logit - highest) / self.sampling.temperature;
        }
        softmax(&mut logits);
        let mut probabilities: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
        if self.sampling.top_p < 1.0 {
            probabilities.sort_unstable_by(likelier);
            let mut reached = 0.0;
            let considered = probabilities.iter().take_while(|(_, probability)| {
                let wanted = reached < self.sampling.top_p || reached == 0.0;
                reached += probability;
                wanted
            });
            let considered = considered.count();
            probabilities.truncate(considered);
        }
        let total: f32 = probabilities.iter().map(|(_, probability)| probability).sum();
        let mut left = self.rng.random::<f32>() * total;
        let drawn = probabilities.iter().find(|(_, probability)| {
            left -= probability;
            left < 0.0
        });
        // Rounding may leave a little after the last one.
        drawn.map_or_else(|| argmax(&logits), |&(token, _)| token)
    }
}

/// Order by falling probability. Equally likely tokens keep their order.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "sorting passes what it compares by reference")]
fn likelier(left: &(u32, f32), right: &(u32, f32)) -> Ordering {
    right.1.total_cmp(&left.1).then(left.0.cmp(&right.0))
}

/// Token with the highest logit, the first of several.
fn argmax(logits: &[f32]) -> u32 {
    let best = (0..).zip(logits).reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(token, _)| token)
}

/// Logprob of `token` and of the `count` likeliest tokens, before any sampling parameter applies.
pub(crate) fn logprob(tokenizer: &Tokenizer, logits: &[f32], token: u32, count: usize) -> TokenLogprob {
    let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total = highest + logits.iter().map(|logit| (logit - highest).exp()).sum::<f32>().ln();
    let logprob = |token, logit: f32| {
        let bytes = tokenizer.bytes(token);
        let text = String::from_utf8_lossy(bytes).into_owned();
        TokenLogprob { token: text, logprob: logit - total, bytes: bytes.to_vec(), top_logprobs: None }
    };
    let mut ranked: Vec<(u32, f32)> = (0..).zip(logits.iter().copied()).collect();
    ranked.sort_unstable_by(likelier);
    let top = ranked.iter().take(count).map(|&(token, logit)| logprob(token, logit)).collect();
    TokenLogprob { top_logprobs: Some(top), ..logprob(token, logits[token as usize]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(sampling: &Sampling, logits: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling.clone(), 0);
        (0..200).map(|_| sampler.sample(logits.to_vec())).collect()
    }

    #[test]
    fn without_temperature_and_with_the_lowest_the_likeliest_token_is_chosen() {
        let lowest = Sampling { temperature: f32::from_bits(1), top_p: 1.0, ..Sampling::default() };
        for sampling in [Sampling::default(), Sampling { top_p: 0.5, ..lowest.clone() }, lowest] {
            let chosen = samples(&sampling, &[1.0, f32::NEG_INFINITY, 3.0, 2.0]);
            assert!(chosen.iter().all(|&token| token == 2));
        }
    }

    #[test]
    fn a_seed_decides_and_completions_differ_under_it() {
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, seed: 3, ..Sampling::default() };
        let logits = [0.0; 50];
        let chosen = samples(&sampling, &logits);
        assert_eq!(chosen, samples(&sampling, &logits));
        assert_ne!(chosen, samples(&Sampling { seed: 9, ..sampling.clone() }, &logits));
        let mut other = Sampler::new(sampling, 1);
        assert_ne!(chosen, (0..200).map(|_| other.sample(logits.to_vec())).collect::<Vec<_>>());
    }

    #[test]
    fn top_p_considers_the_fewest_tokens_that_reach_it() {
        let sampling = Sampling { temperature: 1.0, top_p: 0.6, ..Sampling::default() };
        // Probabilities of a half, a quarter and two eighths: the first two reach 0.6.
        let logits = [8.0_f32.ln(), 4.0_f32.ln(), 2.0_f32.ln(), 2.0_f32.ln()];
        let chosen = samples(&sampling, &logits);
        assert!(chosen.contains(&0) && chosen.contains(&1) && chosen.iter().all(|&token| token < 2));
        assert!(samples(&Sampling { top_p: 0.0, ..sampling }, &logits).iter().all(|&token| token == 0));
    }

    #[test]
    fn penalties_and_bias_turn_away_from_the_likeliest_token() {
        let sampling = Sampling { frequency_penalty: 0.5, ..Sampling::default() };
        assert_eq!(samples(&sampling, &[1.0, 0.9])[..4], [0, 1, 0, 1]);
        let sampling = Sampling { presence_penalty: 1.0, ..Sampling::default() };
        assert_eq!(samples(&sampling, &[1.0, 0.5])[..4], [0, 1, 0, 0]);
        let sampling = Sampling { bias: vec![(2, 100.0)], ..Sampling::default() };
        assert_eq!(samples(&sampling, &[1.0, 3.0, 0.0])[0], 2);
    }

    #[test]
    fn logprobs_are_natural_logarithms_of_probabilities() {
        let tokenizer = crate::model::Model::shipped().unwrap().tokenizer;
        let chosen = logprob(&tokenizer, &[8.0_f32.ln(), 4.0_f32.ln(), 4.0_f32.ln()], 1, 2);
        let top = chosen.top_logprobs.unwrap();
        assert!((chosen.logprob - 0.25_f32.ln()).abs() < 1e-6);
        assert!((top[0].logprob - 0.5_f32.ln()).abs() < 1e-6);
        assert_eq!([&top[0].bytes, &top[1].bytes], [tokenizer.bytes(0), tokenizer.bytes(1)]);
    }
}
