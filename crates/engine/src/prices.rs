//! What models cost: a person's own table first, then ours, which says of which day it is.
//!
//! A model that is in neither has no price, and nothing near it is taken instead.

use lariat_adapters::settings::Price;
use lariat_core::Tokens;

/// The day on which our table was looked up.
pub const AS_OF: &str = "2026-11-15";

/// Model, then USD for a million tokens: input, output, cache read, cache write. Who takes nothing for
/// writing to a cache takes the price of input for what is written.
const OURS: &[(&str, [f64; 4])] = &[
    ("claude-3-5-haiku", [0.8, 4.0, 0.08, 1.0]),
    ("claude-3-7-sonnet", [3.0, 15.0, 0.3, 3.75]),
    ("claude-fable-5", [10.0, 50.0, 1.0, 12.5]),
    ("claude-haiku-4-5", [1.0, 5.0, 0.1, 1.25]),
    ("claude-opus-4", [15.0, 75.0, 1.5, 18.75]),
    ("claude-opus-4-1", [15.0, 75.0, 1.5, 18.75]),
    ("claude-opus-4-5", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-6", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-7", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-4-8", [5.0, 25.0, 0.5, 6.25]),
    ("claude-opus-5", [5.0, 25.0, 0.5, 6.25]),
    ("claude-sonnet-4", [3.0, 15.0, 0.3, 3.75]),
    ("claude-sonnet-4-5", [3.0, 15.0, 0.3, 3.75]),
    ("claude-sonnet-4-6", [3.0, 15.0, 0.3, 3.75]),
    ("claude-sonnet-5", [2.0, 10.0, 0.2, 2.5]),
    ("gemini-2.5-flash", [0.3, 2.5, 0.03, 0.3]),
    ("gemini-2.5-flash-lite", [0.1, 0.4, 0.01, 0.1]),
    ("gemini-2.5-pro", [1.25, 10.0, 0.125, 1.25]),
    ("gemini-3-flash-preview", [0.5, 3.0, 0.05, 0.5]),
    ("gemini-3-pro-preview", [2.0, 12.0, 0.2, 2.0]),
    ("gemini-3.1-pro-preview", [2.0, 12.0, 0.2, 2.0]),
    ("gpt-5", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-codex", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5-mini", [0.25, 2.0, 0.025, 0.25]),
    ("gpt-5-nano", [0.05, 0.4, 0.005, 0.05]),
    ("gpt-5.1", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5.1-codex", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5.1-codex-max", [1.25, 10.0, 0.125, 1.25]),
    ("gpt-5.1-codex-mini", [0.25, 2.0, 0.025, 0.25]),
    ("gpt-5.2", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5.2-codex", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5.3-codex", [1.75, 14.0, 0.175, 1.75]),
    ("gpt-5.4", [2.5, 15.0, 0.25, 2.5]),
    ("gpt-5.4-mini", [0.75, 4.5, 0.075, 0.75]),
    ("gpt-5.5", [5.0, 30.0, 0.5, 5.0]),
];

/// The price of a model, and the day it is of; `None` if nobody knows it.
pub fn of(model: &str, own: &[Price]) -> Option<Price> {
    let bare = bare(model);
    let exact = own.iter().rev().find(|p| p.model == model);
    let exact = exact.or_else(|| own.iter().rev().find(|p| p.model == bare));
    exact.cloned().or_else(|| {
        let (name, [input, output, cache_read, cache_write]) = *OURS.iter().find(|(name, _)| *name == bare)?;
        let as_of = Some(AS_OF.to_owned());
        Some(Price { model: name.to_owned(), input, output, cache_read, cache_write, as_of })
    })
}

/// What these tokens cost at a price, in millionths of a millionth of a USD: a whole number, so that a sum is
/// the same however it was put together.
pub fn cost(price: &Price, tokens: &Tokens) -> u128 {
    let parts = [
        (tokens.input, price.input),
        (tokens.output, price.output),
        (tokens.cache_read, price.cache_read),
        (tokens.cache_write, price.cache_write),
    ];
    // The price of a million, in USD, is a millionth of that of one token in these.
    parts.into_iter().map(|(count, price)| u128::from(count) * (price * 1e6).round() as u128).sum()
}

/// The model without who provides it and without its day: `anthropic/claude-opus-4-1-20250805` is
/// `claude-opus-4-1`.
fn bare(model: &str) -> &str {
    let model = model.rsplit('/').next().unwrap_or(model);
    let is_day = |text: &str| text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit());
    match model.rsplit_once(['-', '@']) {
        Some((name, day)) if is_day(day) => name,
        _ => model,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_found_by_its_own_name_only() {
        assert_eq!(of("claude-opus-4-1-20250805", &[]).unwrap().input, 15.0);
        assert_eq!(of("anthropic/claude-opus-4-5", &[]).unwrap().input, 5.0);
        assert_eq!(of("claude-opus-4-9", &[]), None, "near is not there");
        assert_eq!(of("claude-opus", &[]), None);
        assert!(OURS.is_sorted_by_key(|(name, _)| *name), "one row a model");
    }

    #[test]
    fn a_persons_own_price_comes_first() {
        let price = |model: &str, input| Price {
            model: model.into(),
            input,
            output: 2.0,
            cache_read: 3.0,
            cache_write: 4.0,
            as_of: None,
        };
        let own = [price("gpt-5", 1.0), price("my/gpt-5", 9.0)];
        assert_eq!(of("gpt-5", &own).unwrap().input, 1.0);
        assert_eq!(of("my/gpt-5", &own).unwrap().input, 9.0);
        assert_eq!(of("other/gpt-5", &own).unwrap().input, 1.0);
        let tokens = Tokens { input: 1_000_000, output: 500_000, cache_read: 2_000_000, cache_write: 250_000 };
        assert_eq!(cost(&own[0], &tokens), 9_000_000_000_000);
    }
}
