//! A table of the settings: its values by kind, and what is wrong in it with its line.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::is_name;

/// What is wrong in a file, each with its line.
pub(super) struct Wrong<'a> {
    pub text: &'a str,
    pub found: Vec<String>,
}

impl Wrong<'_> {
    pub fn tell(&mut self, at: &Range<usize>, what: impl AsRef<str>) {
        self.found.push(format!("line {}: {}", line_of(self.text, at.start), what.as_ref()));
    }
}

pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|b| **b == b'\n').count() + 1
}

/// A table of the file.
pub(super) struct Section<'a, 't> {
    pub table: &'a DeTable<'t>,
    pub wrong: &'a mut Wrong<'t>,
    pub span: Range<usize>,
}

impl<'a, 't> Section<'a, 't> {
    /// Tells of every key that is none of these.
    pub fn knows(&mut self, keys: &[&str]) {
        for key in self.table.keys().filter(|k| !keys.contains(&k.get_ref().as_ref())) {
            let near = nearest(key.get_ref(), keys).map_or_else(String::new, |n| format!(", did you mean {n:?}?"));
            self.wrong.tell(&key.span(), format!("{:?} is no setting{near}", key.get_ref()));
        }
    }

    pub fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'t>>> {
        self.table.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v)
    }

    /// A text, with its place.
    pub fn text(&mut self, key: &str) -> Option<(&'a str, Range<usize>)> {
        let value = self.value(key)?;
        match value.get_ref().as_str() {
            Some(text) if !text.is_empty() => Some((text, value.span())),
            Some(_) => {
                self.wrong.tell(&value.span(), format!("{key} is empty"));
                None
            }
            None => {
                self.wrong.tell(&value.span(), format!("{key} is {} and should be text", a(value.get_ref())));
                None
            }
        }
    }

    /// Its name, which ids may begin with.
    pub fn name(&mut self) -> Option<&'a str> {
        let (name, at) = self.text("name")?;
        if !is_name(name) {
            self.wrong.tell(&at, format!("name {name:?}: small letters, digits, '-', '_' and '.', 40 at most"));
        }
        Some(name)
    }

    /// Tells if a key is not there, with the reason why it should be.
    pub fn needs(&mut self, key: &str, why: &str) {
        if self.value(key).is_none() {
            self.wrong.tell(&self.span, why);
        }
    }

    /// A list of texts, the first of them not empty.
    pub fn words(&mut self, key: &str) -> Option<Vec<String>> {
        let value = self.value(key)?;
        let items = value.get_ref().as_array();
        let texts = items.and_then(|a| a.iter().map(|i| i.get_ref().as_str().map(str::to_owned)).collect());
        let texts = texts.filter(|t: &Vec<String>| t.first().is_some_and(|first| !first.is_empty()));
        if texts.is_none() {
            self.wrong.tell(&value.span(), format!("{key} should be a list like [\"opencode\", \"acp\"]"));
        }
        texts
    }

    /// A whole number above zero.
    pub fn number(&mut self, key: &str) -> Option<u32> {
        let value = self.value(key)?;
        let number = value.get_ref().as_integer().and_then(|n| n.as_str().replace('_', "").parse().ok());
        let number = number.filter(|n| *n > 0);
        if number.is_none() {
            self.wrong.tell(&value.span(), format!("{key} should be a whole number above 0"));
        }
        number
    }

    /// A number that is not below zero.
    pub fn amount(&mut self, key: &str) -> Option<f64> {
        let value = self.value(key)?;
        let integer = value.get_ref().as_integer().map(|n| n.as_str());
        let text = integer.or_else(|| value.get_ref().as_float().map(|n| n.as_str()));
        let amount = text.and_then(|text| text.replace('_', "").parse().ok());
        let amount = amount.filter(|n: &f64| n.is_finite() && *n >= 0.0);
        if amount.is_none() {
            self.wrong.tell(&value.span(), format!("{key} should be a number, in USD for a million tokens"));
        }
        amount
    }

    /// A time like `7d`.
    pub fn time(&mut self, key: &str) -> Option<Duration> {
        let (text, at) = self.text(key)?;
        let time = lariat_core::time::duration(text);
        time.map_err(|why| self.wrong.tell(&at, format!("{key} should be {why}"))).ok()
    }

    /// One of a few words.
    pub fn one_of<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let (text, at) = self.text(key)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
            self.wrong.tell(&at, format!("{key} {text:?}: one of {}", words.join(", ")));
        }
        found
    }

    /// A list of texts, each with its place.
    pub fn texts(&mut self, key: &str) -> Option<Vec<(&'a str, Range<usize>)>> {
        let value = self.value(key)?;
        let Some(list) = value.get_ref().as_array() else {
            self.wrong.tell(&value.span(), format!("{key} is {} and should be a list of texts", a(value.get_ref())));
            return None;
        };
        let mut found = Vec::new();
        for item in list.iter() {
            match item.get_ref().as_str() {
                Some(text) => found.push((text, item.span())),
                None => self.wrong.tell(&item.span(), format!("{key} has {} and should have texts", a(item.get_ref()))),
            }
        }
        Some(found)
    }

    /// One table: `[key]`.
    pub fn table<T>(&mut self, key: &str, read: impl FnOnce(&mut Section<'_, 't>) -> Option<T>) -> Option<T> {
        let value = self.value(key)?;
        let Some(table) = value.get_ref().as_table() else {
            self.wrong.tell(&value.span(), format!("{key} is {} and should be a table, [{key}]", a(value.get_ref())));
            return None;
        };
        read(&mut Section { table, wrong: self.wrong, span: value.span() })
    }

    /// Every table of a list of them: `[[key]]`.
    pub fn tables<T>(&mut self, key: &str, mut read: impl FnMut(&mut Section<'_, 't>) -> Option<T>) -> Vec<T> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(list) = value.get_ref().as_array() else {
            self.wrong.tell(&value.span(), format!("write [[{key}]] with two brackets: there may be several"));
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in list.iter() {
            let Some(table) = item.get_ref().as_table() else {
                self.wrong.tell(&item.span(), format!("{key} is {} and should be a table", a(item.get_ref())));
                continue;
            };
            found.extend(read(&mut Section { table, wrong: self.wrong, span: item.span() }));
        }
        found
    }
}

pub(super) fn a(value: &DeValue<'_>) -> String {
    let kind = value.type_str();
    format!("{} {kind}", if kind.starts_with(['a', 'i']) { "an" } else { "a" })
}

/// The known word that is nearest to a wrong one, if any is near.
pub(super) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let far = |k: &&str| distance(word, k);
    known.iter().copied().min_by_key(far).filter(|k| distance(word, k) <= 1 + k.len() / 3)
}

/// How many letters to change, add or leave out to make one word of another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(64).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
