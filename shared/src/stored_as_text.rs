//! The stored form of types that are written as texts.

/// Stores values of a type as text. `$write` turns a value into its text, and `$read` turns the text into the value.
#[macro_export]
macro_rules! stored_as_text {
    ($($of:ty: $write:expr, $read:expr;)+) => {$(
        impl<C> ::minicbor::Encode<C> for $of {
            fn encode<W: ::minicbor::encode::Write>(
                &self,
                encoder: &mut ::minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), ::minicbor::encode::Error<W::Error>> {
                encoder.str(AsRef::<str>::as_ref(&($write)(self)))?.ok()
            }
        }

        impl<'b, C> ::minicbor::Decode<'b, C> for $of {
            fn decode(
                decoder: &mut ::minicbor::Decoder<'b>,
                _: &mut C,
            ) -> Result<Self, ::minicbor::decode::Error> {
                ($read)(decoder.str()?).ok_or_else(|| ::minicbor::decode::Error::message("an unknown text"))
            }
        }
    )+};
}
