//! Numbers of 16 bits, in which large models are kept.

/// A bf16 is the upper half of an f32.
pub(crate) fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The upper half, which is all there is of a number that was a bf16.
pub(crate) fn to_bf16(number: f32) -> u16 {
    (number.to_bits() >> 16) as u16
}

/// An f16 has 5 bits of exponent where an f32 has 8: its bits are put in the place of an f32's, and the product puts the
/// exponent right, also that of numbers next to zero. Weights are never infinite.
#[inline]
pub(crate) fn from_f16(bits: u16) -> f32 {
    const EXPONENT: f32 = f32::from_bits((127 + 112) << 23);
    let magnitude = f32::from_bits(u32::from(bits & 0x7fff) << 13) * EXPONENT;
    f32::from_bits(magnitude.to_bits() | (u32::from(bits & 0x8000) << 16))
}

/// The nearest f16; of two, the even one. What is too large becomes the largest.
pub(crate) fn to_f16(number: f32) -> u16 {
    const LARGEST: f32 = 65504.0;
    const EXPONENT: f32 = f32::from_bits((127 - 112) << 23);
    let magnitude = (number.abs().min(LARGEST) * EXPONENT).to_bits();
    // Half of the last place that stays, or a hair's breadth less, which is what makes ties even.
    let rounded = (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13;
    #[expect(clippy::cast_possible_truncation, reason = "15 bits are left")]
    let bits = rounded as u16;
    bits | if number.is_sign_negative() { 0x8000 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_the_way_there_and_back() {
        let finite = (0..=u16::MAX).filter(|bits| bits & 0x7c00 != 0x7c00);
        assert!(finite.clone().all(|bits| to_f16(from_f16(bits)) == bits));
        for (bits, number) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x7bff, 65504.0), (1, 2.0_f32.powi(-24)), (0x3555, 0.333_251_95)]
        {
            assert_eq!(from_f16(bits).to_bits(), f32::to_bits(number));
        }
    }

    #[test]
    fn what_lies_between_goes_to_the_nearest() {
        assert_eq!(to_f16(1.0 + 2.0_f32.powi(-11)), 0x3c00);
        assert_eq!(to_f16(1.0 + 3.0 * 2.0_f32.powi(-11)), 0x3c02);
        assert_eq!(to_f16(1.0 + 2.0_f32.powi(-11) + 2.0_f32.powi(-20)), 0x3c01);
        assert_eq!(to_f16(1e9), 0x7bff);
    }
}
