//! What kind of network a model is: its sizes, and the few ways in which the supported families differ.

use std::f32::consts::TAU;

use serde::Deserialize;

use crate::load_error::LoadError;

/// The sizes of a network of the Llama family, which Qwen 2 and Qwen 3 belong to as well.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shape {
    /// Rows of the embeddings: at least one for each token.
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// The width between the two halves of the network that follows attention.
    pub(crate) inner: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    /// Heads that share one group of keys and values.
    pub(crate) groups: usize,
    pub(crate) head_width: usize,
    /// Prompt and answer together hold at most so many tokens.
    pub(crate) context: usize,
    pub(crate) epsilon: f32,
    /// By how much each pair of numbers of a head turns from one position to the next.
    pub(crate) speeds: Vec<f32>,
    /// Whether scores come from the embeddings once more, or from a layer of their own.
    pub(crate) tied: bool,
    /// Whether the model multiplies keys and queries by learnt gains, as Qwen 3 does.
    pub(crate) normed_heads: bool,
}

/// The architectures that can be computed, as they name themselves.
pub(crate) const SUPPORTED: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// All widths are a multiple of this, as sums are taken so many at a time.
const UNIT: usize = 16;

/// `config.json`, as far as it matters.
#[derive(Deserialize)]
struct Config {
    model_type: String,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    max_position_embeddings: usize,
    rms_norm_eps: f32,
    rope_theta: Option<f32>,
    rope_scaling: Option<Rope>,
    /// Where newer files keep both.
    rope_parameters: Option<Rope>,
    use_sliding_window: Option<bool>,
    layer_types: Option<Vec<String>>,
    partial_rotary_factor: Option<f32>,
    tie_word_embeddings: Option<bool>,
}

#[derive(Clone, Deserialize)]
struct Rope {
    #[serde(rename = "rope_type", alias = "type")]
    kind: Option<String>,
    #[serde(rename = "rope_theta")]
    theta: Option<f32>,
    factor: Option<f32>,
    low_freq_factor: Option<f32>,
    high_freq_factor: Option<f32>,
    original_max_position_embeddings: Option<f32>,
}

/// What the architectures leave unsaid in their files.
const DEFAULT_THETA: f32 = 10_000.0;

impl Shape {
    /// From a `config.json` in the Hugging Face layout.
    pub(crate) fn from_config(json: &[u8]) -> Result<Self, LoadError> {
        // The name comes first: other architectures lack other fields.
        #[derive(Deserialize)]
        struct Named {
            model_type: String,
        }
        let unreadable = |error: serde_json::Error| LoadError::Broken(format!("config.json: {error}"));
        let named: Named = serde_json::from_slice(json).map_err(unreadable)?;
        check_architecture(&named.model_type)?;
        let config: Config = serde_json::from_slice(json).map_err(unreadable)?;
        if let Some(other) = config.hidden_act.as_ref().filter(|act| *act != "silu") {
            return Err(LoadError::Unsupported(format!("the activation {other}; supported: silu")));
        }
        let slides = config.layer_types.iter().flatten().any(|kind| kind != "full_attention");
        if slides || config.use_sliding_window == Some(true) {
            let found = "attention that does not see everything; supported: full attention";
            return Err(LoadError::Unsupported(found.to_owned()));
        }
        if config.partial_rotary_factor.is_some_and(|part| part < 1.0) {
            let found = "heads that are turned in part; supported: heads that are turned as a whole";
            return Err(LoadError::Unsupported(found.to_owned()));
        }
        let head_width = config.head_dim.unwrap_or(config.hidden_size / config.num_attention_heads.max(1));
        let shape = Self {
            rows: config.vocab_size,
            width: config.hidden_size,
            inner: config.intermediate_size,
            layers: config.num_hidden_layers,
            heads: config.num_attention_heads,
            groups: config.num_key_value_heads.unwrap_or(config.num_attention_heads),
            head_width,
            context: config.max_position_embeddings,
            epsilon: config.rms_norm_eps,
            speeds: config.speeds(head_width)?,
            tied: config.tie_word_embeddings.unwrap_or(false),
            normed_heads: config.model_type == "qwen3",
        };
        shape.checked()
    }

    /// The shape, if its sizes can be computed with.
    pub(crate) fn checked(self) -> Result<Self, LoadError> {
        let widths = [self.width, self.inner, self.head_width];
        if let Some(odd) = widths.iter().find(|width| !width.is_multiple_of(UNIT)) {
            return Err(LoadError::Unsupported(format!(
                "a layer {odd} numbers wide; supported: multiples of {UNIT}"
            )));
        }
        let sizes = [self.rows, self.width, self.inner, self.layers, self.heads, self.groups, self.context];
        if sizes.contains(&0) || self.head_width == 0 || !self.heads.is_multiple_of(self.groups) {
            return Err(LoadError::Broken("the sizes of the network contradict each other".to_owned()));
        }
        Ok(self)
    }
}

/// Refuses architectures that are not supported.
pub(crate) fn check_architecture(name: &str) -> Result<(), LoadError> {
    if SUPPORTED.contains(&name) {
        return Ok(());
    }
    Err(LoadError::Unsupported(format!("the architecture {name}; supported: {}", SUPPORTED.join(", "))))
}

/// How fast the pairs of a head turn without any stretching.
#[expect(clippy::cast_precision_loss, reason = "a head is some dozens of numbers wide")]
pub(crate) fn plain_speeds(theta: f32, head_width: usize) -> Vec<f32> {
    let speed = |pair: usize| 1.0 / theta.powf((2 * pair) as f32 / head_width as f32);
    (0..head_width / 2).map(speed).collect()
}

impl Config {
    fn speeds(&self, head_width: usize) -> Result<Vec<f32>, LoadError> {
        let rope = self.rope_parameters.as_ref().or(self.rope_scaling.as_ref());
        let theta = rope.and_then(|rope| rope.theta).or(self.rope_theta).unwrap_or(DEFAULT_THETA);
        let speeds = plain_speeds(theta, head_width);
        let Some(rope) = rope else { return Ok(speeds) };
        match rope.kind.as_deref() {
            None | Some("default") => Ok(speeds),
            Some("llama3") => rope.stretched(speeds),
            Some(other) => {
                Err(LoadError::Unsupported(format!("the rope scaling {other}; supported: default, llama3")))
            }
        }
    }
}

impl Rope {
    /// As Llama 3.1 stretches its context: pairs that turn slowly turn slower still, fast ones stay, and those in
    /// between go over smoothly.
    fn stretched(&self, speeds: Vec<f32>) -> Result<Vec<f32>, LoadError> {
        let given =
            (self.factor, self.low_freq_factor, self.high_freq_factor, self.original_max_position_embeddings);
        let (Some(factor), Some(low), Some(high), Some(context)) = given else {
            return Err(LoadError::Broken("config.json: the rope scaling llama3 lacks a factor".to_owned()));
        };
        let stretch = |speed: f32| {
            let length = TAU / speed;
            if length < context / high {
                speed
            } else if length > context / low {
                speed / factor
            } else {
                let smooth = (context / length - low) / (high - low);
                (1.0 - smooth) * speed / factor + smooth * speed
            }
        };
        Ok(speeds.into_iter().map(stretch).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Vec<u8> {
        format!(
            r#"{{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "intermediate_size": 32,
                "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5{more}}}"#
        )
        .into_bytes()
    }

    fn refusal(json: &[u8]) -> String {
        Shape::from_config(json).unwrap_err().to_string()
    }

    #[test]
    fn what_a_file_leaves_out_follows_from_the_rest() {
        let shape = Shape::from_config(&config("")).unwrap();
        assert_eq!((shape.head_width, shape.groups, shape.tied), (32, 2, false));
        assert_eq!(shape.speeds[0].to_bits(), 1.0_f32.to_bits());
    }

    #[test]
    fn what_is_not_supported_is_named_with_what_is() {
        assert_eq!(
            refusal(br#"{"model_type": "gpt_neox"}"#),
            "this model cannot be served: it has the architecture gpt_neox; supported: llama, qwen2, qwen3"
        );
        assert!(
            refusal(&config(r#", "rope_scaling": {"type": "yarn"}"#))
                .contains("yarn; supported: default, llama3")
        );
        assert!(
            refusal(&config(r#", "head_dim": 20"#)).contains("20 numbers wide; supported: multiples of 16")
        );
        assert!(refusal(&config(r#", "hidden_act": "gelu""#)).contains("gelu; supported: silu"));
        assert!(refusal(&config(r#", "use_sliding_window": true"#)).contains("supported: full attention"));
        assert!(
            refusal(&config(r#", "layer_types": ["sliding_attention"]"#))
                .contains("supported: full attention")
        );
        assert!(refusal(&config(r#", "partial_rotary_factor": 0.5"#)).contains("turned in part"));
    }

    #[test]
    fn sizes_that_contradict_each_other_are_broken() {
        let json = config(r#", "num_key_value_heads": 0"#);
        assert!(matches!(Shape::from_config(&json), Err(LoadError::Broken(_))));
    }
}
