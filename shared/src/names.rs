//! Names of enum variants, from one list per enum.

/// Gives an enum `ALL`, `as_str` and `parse` from one list of variants and names.
#[macro_export]
macro_rules! names {
    ($of:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $of {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name of the variant in requests, answers and records.
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
