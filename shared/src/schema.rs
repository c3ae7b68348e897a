//! JSON Schemas of types for which `schemars` cannot derive one.

/// Implements `JsonSchema` with a name and a function.
#[macro_export]
macro_rules! schema {
    ($of:ty, $name:expr, $describe:expr) => {
        impl schemars::JsonSchema for $of {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let describe: fn(&mut schemars::SchemaGenerator) -> schemars::Schema = $describe;
                describe(schemas)
            }
        }
    };
}
