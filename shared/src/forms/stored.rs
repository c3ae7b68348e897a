//! The stored form of values: CBOR, with the fields of a struct as an array in the order of their numbers.
//!
//! The number of a field is never used for another field. A program skips fields of a struct that it does not know, and
//! loses them when it writes the value. It refuses a value with a variant that it does not know, unless the field is a
//! [`known_value`] or a [`shared_value`]. Tuples, arrays and packed counts have a fixed length. If an earlier program
//! must not write a record, the record gets a higher form number.

use std::convert::Infallible;

use minicbor::{Decode, Decoder, Encode, decode::Error, encode::Error as EncodeError};

/// Appends a value in its stored form.
#[expect(clippy::expect_used, reason = "a vector takes all bytes, and no stored type refuses to be written")]
pub fn append(value: &impl Encode<()>, to: &mut Vec<u8>) {
    let written: Result<(), EncodeError<Infallible>> = minicbor::encode(value, to);
    written.expect("a value is written to memory");
}

/// Returns a value in its stored form.
pub fn write(value: &impl Encode<()>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    append(value, &mut bytes);
    bytes
}

pub fn read<'a, T: Decode<'a, ()>>(bytes: &'a [u8]) -> Result<T, Error> {
    let mut decoder = Decoder::new(bytes);
    let value = decoder.decode()?;
    if decoder.position() < bytes.len() {
        return Err(Error::message("bytes after the value"));
    }
    Ok(value)
}

/// For optional values. If a value has a variant that this program does not know, it is read as `None`.
pub mod known_value {
    use minicbor::{
        Decode, Decoder, Encode,
        decode::Error,
        encode::{Error as EncodeError, Write},
    };

    pub fn encode<C, T: Encode<C>, W: Write>(
        value: &Option<T>,
        encoder: &mut minicbor::Encoder<W>,
        context: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        value.encode(encoder, context)
    }

    pub fn decode<'b, C, T: Decode<'b, C>>(
        decoder: &mut Decoder<'b>,
        context: &mut C,
    ) -> Result<Option<T>, Error> {
        let begins = decoder.position();
        match Option::decode(decoder, context) {
            Err(error) if error.is_unknown_variant() => {
                // The derived code has read the variant's number and would then skip one item too few, so this skips
                // the whole value.
                decoder.set_position(begins);
                decoder.skip()?;
                Ok(None)
            }
            read => read,
        }
    }

    pub const fn nil<T>() -> Option<Option<T>> {
        Some(None)
    }

    pub const fn is_nil<T>(value: &Option<T>) -> bool {
        value.is_none()
    }
}

/// For values that make no sense if one of their variants is unknown. Such a variant is an error even in an `Option`.
pub mod whole_value {
    use minicbor::{Decode, Decoder, decode::Error};

    pub fn decode<'b, C, T: Decode<'b, C>>(decoder: &mut Decoder<'b>, context: &mut C) -> Result<T, Error> {
        let unknown = |error: Error| match error {
            error if error.is_unknown_variant() => Error::message("a variant of a later program"),
            error => error,
        };
        T::decode(decoder, context).map_err(unknown)
    }
}

/// For optional values behind an [`Arc`](std::sync::Arc). Otherwise, this is like [`known_value`].
pub mod shared_value {
    use std::sync::Arc;

    use minicbor::{
        Decode, Decoder, Encode,
        decode::Error,
        encode::{Error as EncodeError, Write},
    };

    use crate::forms::stored::known_value;

    pub fn encode<C, T: Encode<C>, W: Write>(
        value: &Option<Arc<T>>,
        encoder: &mut minicbor::Encoder<W>,
        context: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        value.as_deref().encode(encoder, context)
    }

    pub fn decode<'b, C, T: Decode<'b, C>>(
        decoder: &mut Decoder<'b>,
        context: &mut C,
    ) -> Result<Option<Arc<T>>, Error> {
        Ok(known_value::decode(decoder, context)?.map(Arc::new))
    }

    pub const fn nil<T>() -> Option<Option<Arc<T>>> {
        Some(None)
    }

    pub const fn is_nil<T>(value: &Option<Arc<T>>) -> bool {
        value.is_none()
    }
}

/// For texts behind an [`Arc`](std::sync::Arc).
pub mod shared_text {
    use std::sync::Arc;

    use minicbor::{
        Decoder,
        decode::Error,
        encode::{Error as EncodeError, Write},
    };

    pub fn encode<C, W: Write>(
        text: &Arc<str>,
        encoder: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), EncodeError<W::Error>> {
        encoder.str(text)?.ok()
    }

    pub fn decode<C>(decoder: &mut Decoder<'_>, _: &mut C) -> Result<Arc<str>, Error> {
        Ok(decoder.str()?.into())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        calendar::Per,
        generation::{Course, ModelApi, Origin},
        ids::RequestId,
        time::Timestamp,
    };

    /// A record as an earlier program, this program and a later program write it.
    #[derive(Debug, PartialEq, Encode)]
    struct Later {
        #[n(0)]
        origin: (u8, bool, Option<&'static str>),
        #[n(1)]
        count: u64,
        #[n(2)]
        added: &'static str,
    }

    #[derive(Debug, PartialEq, Decode)]
    struct Ours {
        #[cbor(n(0), with = "shared_value", has_nil)]
        origin: Option<Arc<Origin>>,
        #[n(1)]
        count: u64,
        #[n(3)]
        missing: Option<u64>,
    }

    #[test]
    fn fields_of_later_programs_are_skipped_and_missing_ones_are_none() {
        let written = write(&Later { origin: (9, true, None), count: 7, added: "x" });
        assert_eq!(read::<Ours>(&written).unwrap(), Ours { origin: None, count: 7, missing: None });
        let written = write(&Later { origin: (1, true, Some("u")), count: 7, added: "x" });
        let origin = Origin { api: ModelApi::Chat, stream: true, user: Some("u".into()), request: None };
        assert_eq!(read::<Ours>(&written).unwrap().origin.as_deref(), Some(&origin));
    }

    #[derive(Debug, PartialEq, Decode)]
    struct Ended {
        #[cbor(n(0), with = "shared_value", has_nil)]
        course: Option<Arc<Course>>,
        #[n(1)]
        count: u64,
    }

    #[derive(Debug, PartialEq, Decode)]
    struct Bound {
        #[n(0)]
        windows: Option<Windows>,
    }

    #[derive(Debug, PartialEq, Decode)]
    struct Windows {
        #[cbor(n(0), decode_with = "whole_value::decode")]
        per: Per,
    }

    #[test]
    fn an_unknown_variant_takes_nothing_of_what_follows_it() {
        let none = None::<u64>;
        let written = write(&((none, none, none, none, 9), 7));
        let ended = Ended { course: Some(Arc::new(Course::default())), count: 7 };
        assert_eq!(read::<Ended>(&written).unwrap(), ended);
        assert_eq!(
            read::<Bound>(&write(&[[3]])).unwrap(),
            Bound { windows: Some(Windows { per: Per::Month }) }
        );
        assert!(read::<Bound>(&write(&[[9]])).is_err(), "a bound must not be lost");
    }

    #[test]
    fn an_id_has_16_bytes_and_nothing_follows_a_value() {
        let id = RequestId::new(Timestamp::from_millis(1), [7; 10]);
        let mut written = write(&id);
        assert_eq!(read::<RequestId>(&written).unwrap(), id);
        written.push(0);
        assert!(read::<RequestId>(&written).is_err());
        assert!(read::<RequestId>(&[0x42, 1, 2]).is_err(), "two bytes");
    }
}
