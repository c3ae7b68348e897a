//! Names of variants, from one list for each enum.

/// Gives an enum `ALL` of its variants, in this order, the name of each, and the variant of a name.
#[macro_export]
macro_rules! names {
    ($of:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $of {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Name of the variant in requests, answers and records.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Finds the variant of this name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.as_str() == text)
            }
        }
    };
}
