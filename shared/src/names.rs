//! Names of the variants of enums. Each enum has a single list of them.

/// Gives an enum `ALL`, `as_str` and `parse` from one list of variants and names.
#[macro_export]
macro_rules! names {
    ($of:ident: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $of {
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            /// Returns the name that the variant has in requests, in answers and in records.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// Returns the variant that has this name.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|variant| variant.as_str() == text)
            }
        }
    };
}
