//! The planned answer to one request: lengths, finish reasons and usage reports.

use std::sync::Arc;

use super::{
    render,
    request::{Asked, StreamOptions},
};
use crate::upstream::script::{Script, Told, Usage};

/// Planned generation for one request.
pub(crate) struct Plan {
    /// Script of the request.
    pub script: Script,
    /// Model, under the upstream's own name for it.
    pub model: String,
    /// Number of alternatives to report for each token of text.
    pub alternatives: Option<u64>,
    /// Number of tokens in each choice.
    pub lengths: Arc<[u64]>,
    options: StreamOptions,
    timings_per_token: bool,
    /// Whether the request's limit cuts each choice short.
    shortened: Vec<bool>,
    prompt: u64,
}

/// Place of a usage report in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// First chunk of a stream.
    First,
    /// Later chunk of a choice.
    Chunk,
    /// End of a stream, or a whole answer.
    End,
}

impl Plan {
    /// Returns the plan for a request with this script.
    pub(crate) fn new(asked: &Asked<'_>, script: Script) -> Self {
        let (lengths, shortened): (Vec<u64>, _) = asked.lengths(&script).into_iter().unzip();
        Self {
            model: script.answers_as.clone().unwrap_or_else(|| asked.model.clone().into_owned()),
            options: asked.stream_options,
            timings_per_token: asked.timings_per_token,
            alternatives: asked.alternatives(),
            lengths: lengths.into(),
            shortened,
            prompt: asked.prompt_tokens(&script),
            script,
        }
    }

    pub(crate) fn length(&self, choice: u64) -> u64 {
        self.lengths[usize::try_from(choice).expect("it is an index")]
    }

    /// Returns the finish reason of a choice.
    pub(crate) fn finish(&self, choice: u64) -> &str {
        let shortened = self.shortened[usize::try_from(choice).expect("it is an index")];
        match (&self.script.finish_reason, shortened, self.script.tool_calls) {
            (Some(reason), _, _) => reason,
            (None, true, _) => "length",
            (None, false, 0) => "stop",
            (None, false, _) => "tool_calls",
        }
    }

    /// Returns the true usage after this many generated tokens.
    pub(crate) fn served(&self, completion: u64) -> Usage {
        Usage { prompt: self.prompt, cached: self.script.cached_tokens, completion }
    }

    /// Returns whether a stream ends with a report.
    pub(crate) fn reports_at_end(&self) -> bool {
        self.options.include_usage && self.script.told != Told::Nothing
    }

    /// Returns the usage report for choices of these many tokens; `None` if the script has none in this place.
    pub(crate) fn report(&self, choices: &[u64], place: Place) -> Option<String> {
        let completion: u64 = choices.iter().sum();
        let reasoning: u64 = choices.iter().map(|tokens| self.script.reasoning_tokens.min(*tokens)).sum();
        let verbatim = |text: &String| Some(format!(r#""usage":{text}"#));
        let usage = match (&self.script.told, place) {
            (Told::Nothing, _) | (Told::Json { .. }, Place::Chunk) => return None,
            (Told::Json { first, .. }, Place::First) => return first.as_ref().and_then(verbatim),
            (Told::Json { last, .. }, Place::End) => return verbatim(last),
            (Told::Lie(usage), _) | (Told::First(usage), Place::First) => *usage,
            (Told::Truth, _) | (Told::First(_), Place::Chunk | Place::End) => self.served(completion),
        };
        Some(render::report(usage, reasoning, &self.script, place != Place::End))
    }

    /// Returns whether a chunk of a choice contains a usage report.
    pub(crate) fn reports_in(&self, place: Place) -> bool {
        let Self { options, timings_per_token, script, .. } = self;
        let at_first = place == Place::First && matches!(script.told, Told::First(_) | Told::Json { .. });
        let continuous = if script.style.timings {
            *timings_per_token
        } else {
            options.continuous_usage_stats && !script.style.usage_at_end_only
        };
        continuous || (at_first && options.include_usage)
    }
}
