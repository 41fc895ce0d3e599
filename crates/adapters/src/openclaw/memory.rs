//! The last good answer of each gateway; see [`crate::memory`].

use std::path::Path;

use lariat_core::Time;

use crate::memory::{self, Kind};
use crate::openclaw::rows::Row;
use crate::settings::Gateway;

const KIND: Kind = Kind { name: "gateway", format: u64::from_le_bytes(*b"gateway3") };

/// Another address is another gateway.
fn whose(gateway: &Gateway) -> String {
    format!("{} {}", gateway.name.as_deref().unwrap_or(""), gateway.url())
}

/// What it said last, and when.
pub fn recall(cache: Option<&Path>, gateway: &Gateway) -> Option<(Time, Vec<Row>)> {
    memory::recall(cache, KIND, &whose(gateway))
}

/// Keeps what it said now.
pub fn keep(cache: Option<&Path>, gateway: &Gateway, now: Time, rows: &[&Row]) {
    memory::keep(cache, KIND, &whose(gateway), now, rows);
}
