//! Tools whose names differ between upstreams and the client: custom tools, and tools in a namespace.

/// The client's name for a tool.
pub struct ToolName {
    /// Name of the function that upstreams get.
    pub flat: String,
    /// Namespace of the tool, as a JSON string.
    pub namespace: Option<String>,
    /// Name of the tool, as a JSON string.
    pub name: String,
    /// Whether the tool takes a text instead of an object.
    pub is_custom: bool,
}

/// The request's tools that have another name at upstreams, or take a text.
#[derive(Default)]
pub struct ToolNames(Vec<ToolName>);

impl ToolNames {
    pub fn add(&mut self, tool: ToolName) {
        self.0.push(tool);
    }

    pub(crate) fn bytes(&self) -> usize {
        let texts = |tool: &ToolName| {
            tool.flat.len() + tool.namespace.as_ref().map_or(0, String::len) + tool.name.len()
        };
        self.0.iter().map(|tool| size_of::<ToolName>() + texts(tool)).sum()
    }

    /// Finds the tool behind a function, if it has another name or takes a text.
    pub fn of_function(&self, flat: &str) -> Option<&ToolName> {
        self.0.iter().find(|tool| tool.flat == flat)
    }

    /// Finds the tool with this client-side name. Both arguments are JSON strings.
    pub fn of_tool(&self, namespace: Option<&str>, name: &str) -> Option<&ToolName> {
        self.0.iter().find(|tool| tool.namespace.as_deref() == namespace && tool.name == name)
    }
}
