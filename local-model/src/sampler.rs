//! Chooses the next token from the model's logits.

use local_model_transformer::softmax;
use rand::{
    SeedableRng,
    distr::{Distribution, weighted::WeightedIndex},
    rngs::StdRng,
};

/// How to choose the tokens of one answer. The parameters mean the same as in OpenAI's API.
pub(crate) struct Sampler {
    /// At 0, always chooses the likeliest token.
    temperature: f32,
    /// Values that are added to the logits of single tokens.
    bias: Vec<(u32, f32)>,
    /// Random numbers, the same for the same seed.
    rng: StdRng,
}

impl Sampler {
    pub(crate) fn new(temperature: f32, bias: Vec<(u32, f32)>, seed: u64) -> Self {
        Self { temperature, bias, rng: StdRng::seed_from_u64(seed) }
    }

    /// Chooses the next token, never a token with a logit of negative infinity.
    pub(crate) fn sample(&mut self, mut logits: Vec<f32>) -> u32 {
        for &(token, bias) in &self.bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias.clamp(-100.0, 100.0);
            }
        }
        let best = (0..).zip(&logits).reduce(|best, next| if next.1 > best.1 { next } else { best });
        let (best, highest) = best.map_or((0, 0.0), |(token, logit)| (token, *logit));
        if self.temperature == 0.0 {
            return best;
        }
        // The highest logit is subtracted, so that no value becomes infinite at low temperatures.
        for logit in &mut logits {
            *logit = (*logit - highest) / self.temperature;
        }
        softmax(&mut logits);
        let drawn = WeightedIndex::new(logits).map(|probabilities| probabilities.sample(&mut self.rng));
        drawn.ok().and_then(|token| u32::try_from(token).ok()).unwrap_or(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(mut sampler: Sampler, logits: &[f32]) -> Vec<u32> {
        (0..200).map(|_| sampler.sample(logits.to_vec())).collect()
    }

    #[test]
    fn without_temperature_and_with_the_lowest_the_likeliest_token_is_chosen() {
        for temperature in [0.0, f32::from_bits(1)] {
            let sampler = Sampler::new(temperature, Vec::new(), 1);
            let chosen = samples(sampler, &[1.0, f32::NEG_INFINITY, 3.0, 2.0]);
            assert!(chosen.iter().all(|&token| token == 2));
        }
    }

    #[test]
    fn a_seed_decides() {
        let seeded = |seed| samples(Sampler::new(1.0, Vec::new(), seed), &[0.0; 50]);
        assert_eq!(seeded(3), seeded(3));
        assert_ne!(seeded(3), seeded(9));
    }

    #[test]
    fn likelier_tokens_are_drawn_more_often_and_impossible_ones_never() {
        let chosen = samples(Sampler::new(1.0, Vec::new(), 1), &[9.0_f32.ln(), 0.0, f32::NEG_INFINITY]);
        let count = |token| chosen.iter().filter(|&&drawn| drawn == token).count();
        assert!((150..200).contains(&count(0)) && count(1) > 0 && count(2) == 0);
    }

    #[test]
    fn a_bias_makes_another_token_the_likeliest() {
        assert_eq!(Sampler::new(0.0, vec![(2, 100.0)], 1).sample(vec![1.0, 3.0, 0.0]), 2);
    }
}
