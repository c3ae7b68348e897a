//! Cache breakpoints that Anthropic refuses.

use serde_json::Value;

use super::refusal::{Checked, all_of, invalid, no_more};

/// Maximum number of breakpoints.
const MOST_MARKS: usize = 4;

/// Checks every `cache_control`. With beta features, it may contain a scope.
pub(super) fn check(body: &Value, beta: bool) -> Checked {
    let marks = in_order(body);
    let top = &body["cache_control"];
    let all = marks.iter().copied().chain((!top.is_null()).then_some(top));
    for mark in all.clone() {
        one(mark, beta)?;
    }
    let count = all.clone().count();
    if count > MOST_MARKS {
        return invalid(&format!(
            "A maximum of {MOST_MARKS} blocks with cache_control may be provided. Found {count}."
        ));
    }
    let mut hours = all.map(|mark| mark["ttl"] == "1h").skip_while(|hour| *hour);
    if hours.any(|hour| hour) {
        return invalid(
            "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note that blocks are processed in the following order: `tools`, `system`, `messages`.",
        );
    }
    Ok(())
}

fn one(mark: &Value, beta: bool) -> Checked {
    let known: &[&str] = if beta { &["type", "ttl", "scope"] } else { &["type", "ttl"] };
    all_of("cache_control", mark, &["type"])?;
    no_more("cache_control.ephemeral", mark, known)?;
    if mark["type"] != "ephemeral" {
        return invalid("cache_control.type: Input should be 'ephemeral'");
    }
    let ttl = &mark["ttl"];
    if !ttl.is_null() && ttl != "5m" && ttl != "1h" {
        return invalid("cache_control.ephemeral.ttl: Input should be '5m' or '1h'");
    }
    Ok(())
}

/// Returns all breakpoints in tools, system and messages, in this order.
fn in_order(body: &Value) -> Vec<&Value> {
    let blocks = body["messages"].as_array().into_iter().flatten().flat_map(|message| {
        let blocks = message["content"].as_array().into_iter().flatten();
        blocks.flat_map(|block| block["content"].as_array().into_iter().flatten().chain([block]))
    });
    let tools = body["tools"].as_array().into_iter().flatten();
    let system = body["system"].as_array().into_iter().flatten();
    let marks = tools.chain(system).chain(blocks).filter_map(|block| block.get("cache_control"));
    marks.filter(|mark| !mark.is_null()).collect()
}
