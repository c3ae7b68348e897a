//! Choosing the next token from the model's scores.

use std::{cmp::Ordering, collections::HashMap};

use crate::{arithmetic::softmax, dice::Dice};

/// How an answer's tokens are chosen, with the meaning that the OpenAI API gives each value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sampling {
    /// 0 always takes the likeliest token.
    pub(crate) temperature: f32,
    /// Only the likeliest tokens that together reach this share are considered.
    pub(crate) top_p: f32,
    pub(crate) frequency_penalty: f32,
    pub(crate) presence_penalty: f32,
    /// Added to the scores of single tokens.
    pub(crate) bias: Vec<(u32, f32)>,
    /// The same seed chooses the same tokens.
    pub(crate) seed: u64,
}

/// One choice's sampling: what it may take depends on what it took.
pub(crate) struct Sampler {
    sampling: Sampling,
    dice: Dice,
    taken: HashMap<u32, f32>,
}

/// How likely the model found a token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Likelihood {
    pub(crate) token: u32,
    pub(crate) logprob: f32,
}

impl Sampler {
    /// `choice` numbers the answers to one request, so that they differ under one seed.
    pub(crate) fn new(sampling: Sampling, choice: usize) -> Self {
        let mut dice = Dice::new(sampling.seed);
        for _ in 0..choice {
            dice = Dice::new(dice.roll());
        }
        Self { sampling, dice, taken: HashMap::new() }
    }

    /// Takes the next token, given one score per token; one of negative infinity is never taken.
    pub(crate) fn take(&mut self, mut scores: Vec<f32>) -> u32 {
        self.adjust(&mut scores);
        let token =
            if self.sampling.temperature == 0.0 { likeliest(&scores) } else { self.draw(&mut scores) };
        *self.taken.entry(token).or_default() += 1.0;
        token
    }

    fn adjust(&self, scores: &mut [f32]) {
        for &(token, bias) in &self.sampling.bias {
            scores[token as usize] += bias;
        }
        for (&token, times) in &self.taken {
            let penalty = self.sampling.frequency_penalty * times + self.sampling.presence_penalty;
            scores[token as usize] -= penalty;
        }
    }

    fn draw(&mut self, scores: &mut [f32]) -> u32 {
        // Less the highest, so that none becomes infinite, however low the temperature.
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for score in &mut *scores {
            *score = (*score - highest) / self.sampling.temperature;
        }
        softmax(scores);
        let mut shares: Vec<(u32, f32)> = (0..).zip(scores.iter().copied()).collect();
        if self.sampling.top_p < 1.0 {
            shares.sort_unstable_by(likelier);
            let mut reached = 0.0;
            let considered = shares.iter().take_while(|(_, share)| {
                let wanted = reached < self.sampling.top_p || reached == 0.0;
                reached += share;
                wanted
            });
            let considered = considered.count();
            shares.truncate(considered);
        }

        let mut left = self.dice.fraction() * shares.iter().map(|(_, share)| share).sum::<f32>();
        for &(token, share) in &shares {
            left -= share;
            if left < 0.0 {
                return token;
            }
        }
        // Rounding may leave a hair's breadth after the last one.
        likeliest(scores)
    }
}

/// The higher score first. Tokens that are equally likely stay in their order, on every machine.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "sorting passes what it compares by reference")]
fn likelier(left: &(u32, f32), right: &(u32, f32)) -> Ordering {
    right.1.total_cmp(&left.1).then(left.0.cmp(&right.0))
}

/// The token with the highest score, the first of several.
fn likeliest(scores: &[f32]) -> u32 {
    let best = (0..).zip(scores).reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map_or(0, |(token, _)| token)
}

/// How likely the model found `token`, and the `count` likeliest tokens, before any sampling value is applied.
pub(crate) fn likelihoods(scores: &[f32], token: u32, count: usize) -> (Likelihood, Vec<Likelihood>) {
    let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total = highest + scores.iter().map(|score| (score - highest).exp()).sum::<f32>().ln();
    let mut ranked: Vec<(u32, f32)> = (0..).zip(scores.iter().copied()).collect();
    // Vocabularies are large, and only a few of their tokens are asked for.
    if (1..ranked.len()).contains(&count) {
        ranked.select_nth_unstable_by(count - 1, likelier);
        ranked.truncate(count);
    }
    ranked.sort_unstable_by(likelier);
    let likelihood = |token, score: f32| Likelihood { token, logprob: score - total };
    let top = ranked.iter().take(count).map(|&(token, score)| likelihood(token, score)).collect();
    (likelihood(token, scores[token as usize]), top)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(sampling: &Sampling, scores: &[f32]) -> Vec<u32> {
        let mut sampler = Sampler::new(sampling.clone(), 0);
        (0..200).map(|_| sampler.take(scores.to_vec())).collect()
    }

    #[test]
    fn without_temperature_the_likeliest_token_is_taken() {
        assert!(draws(&Sampling::default(), &[1.0, 3.0, 3.0, 2.0]).iter().all(|&token| token == 1));
    }

    #[test]
    fn the_lowest_temperature_takes_the_likeliest_token_too() {
        let sampling = Sampling { temperature: f32::from_bits(1), top_p: 1.0, ..Sampling::default() };
        let scores = [1.0, f32::NEG_INFINITY, 3.0, 2.0];
        assert!(draws(&sampling, &scores).iter().all(|&token| token == 2));
        assert!(draws(&Sampling { top_p: 0.5, ..sampling }, &scores).iter().all(|&token| token == 2));
    }

    #[test]
    fn a_seed_decides_and_choices_differ_under_it() {
        let sampling = Sampling { temperature: 1.0, top_p: 1.0, seed: 3, ..Sampling::default() };
        let scores = [0.0; 50];
        assert_eq!(draws(&sampling, &scores), draws(&sampling, &scores));
        assert_ne!(draws(&sampling, &scores), draws(&Sampling { seed: 4, ..sampling.clone() }, &scores));
        let mut other = Sampler::new(sampling.clone(), 1);
        assert_ne!(
            draws(&sampling, &scores),
            (0..200).map(|_| other.take(scores.to_vec())).collect::<Vec<_>>()
        );
    }

    #[test]
    fn top_p_considers_the_fewest_tokens_that_reach_the_share() {
        let sampling = Sampling { temperature: 1.0, top_p: 0.6, ..Sampling::default() };
        // Shares of a half, a quarter and two eighths: the first two reach 0.6.
        let scores = [8.0_f32.ln(), 4.0_f32.ln(), 2.0_f32.ln(), 2.0_f32.ln()];
        let drawn = draws(&sampling, &scores);
        assert!(drawn.contains(&0) && drawn.contains(&1));
        assert!(drawn.iter().all(|&token| token < 2));
        assert!(draws(&Sampling { top_p: 0.0, ..sampling }, &scores).iter().all(|&token| token == 0));
    }

    #[test]
    fn penalties_turn_away_from_what_was_taken() {
        let sampling = Sampling { frequency_penalty: 0.5, ..Sampling::default() };
        assert_eq!(draws(&sampling, &[1.0, 0.9])[..4], [0, 1, 0, 1]);
        let sampling = Sampling { presence_penalty: 1.0, ..Sampling::default() };
        assert_eq!(draws(&sampling, &[1.0, 0.5])[..4], [0, 1, 0, 0]);
    }

    #[test]
    fn a_bias_can_force_a_token() {
        let sampling = Sampling { bias: vec![(2, 100.0)], ..Sampling::default() };
        assert_eq!(draws(&sampling, &[1.0, 3.0, 0.0])[0], 2);
    }

    #[test]
    fn likelihoods_are_natural_logarithms_of_shares() {
        let scores = [8.0_f32.ln(), 4.0_f32.ln(), 4.0_f32.ln()];
        let (taken, top) = likelihoods(&scores, 1, 2);
        assert!((taken.logprob - 0.25_f32.ln()).abs() < 1e-6);
        assert!((top[0].logprob - 0.5_f32.ln()).abs() < 1e-6);
        assert_eq!([top[0].token, top[1].token], [0, 1]);
    }
}
