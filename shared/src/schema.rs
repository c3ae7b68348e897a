//! JSON Schemas of types for which `schemars` cannot derive a schema.

/// Implements `JsonSchema` with a given name and a function that returns the schema.
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
