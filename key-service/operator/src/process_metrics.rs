//! Metrics of this process, read from the Prometheus text format. In `faregate` they include the gateway's metrics.
//! Otherwise, the gateways' metrics are on the gateways' admin ports.

use std::sync::Arc;

pub type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// The metrics at one moment.
pub(crate) struct ProcessMetrics(String);

impl ProcessMetrics {
    pub(crate) fn of(render: &RenderMetrics) -> Self {
        Self(render())
    }

    /// Returns the value of a metric without labels, if this process has it.
    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.series(name).find(|(labels, _)| labels.is_empty()).map(|(_, value)| value)
    }

    /// Iterates over the labels and values of a metric.
    pub(crate) fn series<'a>(
        &'a self,
        name: &'a str,
    ) -> impl Iterator<Item = (Vec<(String, String)>, f64)> + 'a {
        self.0.lines().filter_map(move |line| {
            let rest = line.strip_prefix(name)?;
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.rsplit_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            Some((read_labels(labels), value.trim().parse().ok()?))
        })
    }
}

/// Parses labels such as `model="a",state="b"`.
fn read_labels(mut text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let (mut value, mut escaped, mut end) = (String::new(), false, rest.len());
        for (at, c) in rest.char_indices() {
            match (escaped, c) {
                (true, 'n') => value.push('\n'),
                (false, '\\') => {
                    escaped = true;
                    continue;
                }
                (false, '"') => {
                    end = at + 1;
                    break;
                }
                (true | false, c) => value.push(c),
            }
            escaped = false;
        }
        labels.push((name.trim_start_matches(',').to_owned(), value));
        text = &rest[end..];
    }
    labels
}

/// What the pages show about the running program.
#[derive(Clone)]
pub struct ProgramFacts {
    /// The program's version, as `--version` prints it.
    pub version: &'static str,
    pub metrics: RenderMetrics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_name_and_labels_with_their_escapes() {
        let text = "# HELP lag seconds\n# TYPE lag gauge\nlag 1.5\nlag_of_others 7\n\
                    upstreams{model=\"a \\\"b\\\", {c}\",state=\"serving\"} 2\nupstreams{model=\"d\",state=\"set_aside\"} 1\n";
        let metrics = ProcessMetrics(text.into());
        assert_eq!(metrics.value("lag"), Some(1.5));
        assert_eq!(metrics.value("la"), None);
        assert_eq!(metrics.value("spool"), None);
        let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let series: Vec<_> = metrics.series("upstreams").collect();
        assert_eq!(
            series,
            [
                (vec![label("model", "a \"b\", {c}"), label("state", "serving")], 2.0),
                (vec![label("model", "d"), label("state", "set_aside")], 1.0),
            ]
        );
    }
}
