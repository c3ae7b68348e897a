//! Chance that can be replayed: the same seed rolls the same numbers on every machine.

/// A generator of pseudo-random numbers (SplitMix64, by Steele, Lea and Flood). For sampling, never for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number, each as likely as the others.
    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to, but never, 1.
    pub(crate) fn fraction(&mut self) -> f32 {
        /// An f32 tells apart so many steps between 0 and 1.
        const STEPS: u64 = 1 << 24;
        #[expect(clippy::cast_precision_loss, reason = "both are below 2^24 + 1, which an f32 holds exactly")]
        let fraction = (self.roll() % STEPS) as f32 / STEPS as f32;
        fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rolls_are_those_of_the_published_algorithm() {
        let mut dice = Dice::new(1_234_567);
        assert_eq!(dice.roll(), 6_457_827_717_110_365_317);
        assert_eq!(dice.roll(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn fractions_fill_the_range_from_zero_to_one() {
        let mut dice = Dice::new(7);
        let fractions: Vec<f32> = (0..1000).map(|_| dice.fraction()).collect();
        assert!(fractions.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        assert!(fractions.iter().any(|&fraction| fraction < 0.05));
        assert!(fractions.iter().any(|&fraction| fraction > 0.95));
    }
}
