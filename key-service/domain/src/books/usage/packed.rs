//! The stored form of many counts: their numbers one after the other, each in as few bytes of seven bits as it needs.
//! The form is compact, since every bill rewrites all counts.

use minicbor::{
    Decode, Decoder, Encode, Encoder,
    decode::Error,
    encode::{Error as EncodeError, Write},
};
use shared::money::NanoUsd;

use super::parts::{HoursOfDay, PartCounts, UserDay};

/// How many numbers are stored for each part.
const NUMBERS: usize = 5;

fn push(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

/// Takes the first number from the bytes; `None` unless they begin with one that `push` writes.
fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        number |= bits << shift;
        if number >> shift != bits {
            return None;
        }
        if *byte < 0x80 {
            return (bits != 0 || shift == 0).then_some(number);
        }
    }
    None
}

fn push_counts(
    bytes: &mut Vec<u8>,
    PartCounts { requests, prompt, cached, completion, charged }: PartCounts,
) {
    // The encoding keeps small negative amounts short too.
    let charged = charged.nanos();
    let charged = ((charged << 1) ^ (charged >> 63)).cast_unsigned();
    for number in [requests, prompt, cached, completion, charged] {
        push(bytes, number);
    }
}

fn take_counts(bytes: &mut &[u8]) -> Option<PartCounts> {
    let mut numbers = [0; NUMBERS];
    for number in &mut numbers {
        *number = take(bytes)?;
    }
    let [requests, prompt, cached, completion, charged] = numbers;
    let charged = (charged >> 1).cast_signed() ^ -(charged & 1).cast_signed();
    Some(PartCounts { requests, prompt, cached, completion, charged: NanoUsd::from_nanos(charged) })
}

impl<C> Encode<C> for HoursOfDay {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        let mut bytes = Vec::with_capacity(16 * self.iter().len());
        for (hour, counts) in self.iter() {
            push(&mut bytes, hour.into());
            push_counts(&mut bytes, counts);
        }
        encoder.bytes(&bytes)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for HoursOfDay {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, Error> {
        let (mut bytes, mut hours) = (decoder.bytes()?, Vec::new());
        while !bytes.is_empty() {
            let hour = take(&mut bytes).and_then(|hour| u8::try_from(hour).ok());
            hours.push(hour.zip(take_counts(&mut bytes)).ok_or_else(|| Error::message("not an hour"))?);
        }
        Self::read(hours).ok_or_else(|| Error::message("hours out of order"))
    }
}

/// Encodes the users, then the counts of each, and finally the counts of all others.
impl<C> Encode<C> for UserDay {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), EncodeError<W::Error>> {
        encoder.array(2)?.array(self.named().len() as u64)?;
        let mut bytes = Vec::with_capacity(16 * (self.named().len() + 1));
        for (user, counts) in self.named() {
            encoder.str(user)?;
            push_counts(&mut bytes, counts);
        }
        push_counts(&mut bytes, self.others());
        encoder.bytes(&bytes)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for UserDay {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, Error> {
        if decoder.array()? != Some(2) {
            return Err(Error::message("not users and counts"));
        }
        let users = decoder.array_iter_with::<C, &str>(context)?.collect::<Result<Vec<_>, _>>()?;
        let mut bytes = decoder.bytes()?;
        let mut counts = || take_counts(&mut bytes).ok_or_else(|| Error::message("not the counts of a user"));
        let named = users.into_iter().map(|user| Ok::<_, Error>((user.into(), counts()?)));
        let (named, others) = (named.collect::<Result<_, _>>()?, counts()?);
        if bytes.is_empty() { Ok(Self::of(named, others)) } else { Err(Error::message("too many counts")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_as_they_were_written() {
        for nanos in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            let charged = NanoUsd::from_nanos(nanos);
            let counts = PartCounts { requests: 1, prompt: 127, cached: 128, completion: u64::MAX, charged };
            let mut bytes = Vec::new();
            push_counts(&mut bytes, counts);
            let mut rest = &bytes[..];
            assert_eq!((take_counts(&mut rest), rest.len()), (Some(counts), 0));
        }
    }

    #[test]
    fn a_number_has_one_form() {
        for wrong in [&[0x80, 0][..], &[0xff; 10], &[0x80], &[]] {
            assert_eq!(take(&mut &wrong[..]), None, "{wrong:?}");
        }
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..]), Some(u64::MAX));
    }
}
