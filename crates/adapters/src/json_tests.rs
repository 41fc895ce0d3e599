//! The reader against a full JSON parser, against cut and mangled input, and
//! fed in pieces of every size.

use std::io::BufReader;

use proptest::prelude::*;

use super::*;

const ALL: Keep = |_, _| true;

fn to_serde(v: Value<'_>) -> serde_json::Value {
    if v.is_object() {
        return serde_json::Value::Object(v.entries().map(|(k, v)| (k.to_owned(), to_serde(v))).collect());
    }
    match v.node().map(|n| n.kind) {
        Some(Kind::Array) => v.items().map(to_serde).collect(),
        Some(Kind::String(_)) => v.str().unwrap().into(),
        Some(Kind::Number(_)) => v.f64().unwrap().into(),
        Some(Kind::Bool(b)) => b.into(),
        _ => serde_json::Value::Null,
    }
}

#[test]
fn keeps_what_is_asked_and_skips_the_rest() {
    let keep: Keep = |parent, key| matches!(key, b"type" | b"message" | b"usage") || parent == b"usage";
    let line =
        br#"{"type":"assistant","junk":{"a":[1,"}\"",{}]},"message":{"text":"long","usage":{"in":5,"out":7.5}}}"#;
    let doc = Doc::parse(line, keep, 100).unwrap();
    let root = doc.root();
    assert_eq!(root.get("type").str(), Some("assistant"));
    assert!(!root.get("junk").exists() && !root.get("message").get("text").exists());
    assert_eq!(root.get("message").get("usage").get("in").u64(), Some(5));
    assert_eq!(root.get("message").get("usage").get("out").f64(), Some(7.5));
    assert!(!root.get("no").get("such").get("thing").exists());
}

#[test]
fn cuts_long_strings_between_characters() {
    let doc = Doc::parse("{\"a\":\"ééééé\"}".as_bytes(), ALL, 5).unwrap();
    assert_eq!(doc.root().get("a").str(), Some("éé"));
    assert!(!doc.lossy);
    let mut doc = Doc::new(50);
    doc.read(&mut &b"{\"a\":\"x\xffy\"}"[..], ALL).unwrap();
    assert_eq!(doc.root().get("a").str(), Some("x\u{fffd}y"));
    assert!(doc.lossy);
    let path = format!("/{}", "é".repeat(400));
    let doc = Doc::parse(format!("{{\"cwd\":\"{path}\",\"a\":\"{path}\"}}").as_bytes(), ALL, 50).unwrap();
    assert_eq!((doc.root().get("cwd").str(), doc.root().get("a").str().map(str::len)), (Some(&*path), Some(49)));
    assert!(Doc::parse(b"{\"a\":\"x\xffy\"}", ALL, 50).is_err() && Doc::parse(b"{}{}", ALL, 50).is_err());
}

#[test]
fn tells_unfinished_from_broken() {
    for cut in [r#"{"a"#, r#"{"a":"#, r#"{"a":[1,2"#, r#"{"a":"x"#, "{", ""] {
        assert!(matches!(Doc::parse(cut.as_bytes(), ALL, 9), Err(Bad::Unfinished)), "{cut}");
    }
    for bad in ["nope", "{]}", r#"{"a" 1}"#, "{\"a\":\"x\ny\"}", "{\"a\":[1\n]}", "\0\0\0"] {
        assert!(matches!(Doc::new(9).read(&mut bad.as_bytes(), ALL), Err(Bad::Broken)), "{bad}");
    }
    assert_eq!(Doc::parse(b"{\n  \"a\": 1\n}\n", ALL, 9).unwrap().root().get("a").u64(), Some(1));
}

#[test]
fn nesting_is_bounded() {
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    Doc::parse(&deep, ALL, 9).unwrap();
    let deep = ["{\"a\":".repeat(50_000), "1".into(), "}".repeat(50_000)].concat();
    Doc::parse(deep.as_bytes(), ALL, 9).unwrap();
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i32>().prop_map(|n| f64::from(n).into()),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map("[a-z\u{e9}\"\\\\]{0,4}", inner, 0..6)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_a_full_parser_in_pieces_of_any_size(value in any_json(), piece in 1usize..40) {
        let text = serde_json::to_string(&value).unwrap();
        let mut doc = Doc::new(1 << 20);
        let mut source = BufReader::with_capacity(piece, text.as_bytes());
        doc.read(&mut source, ALL).unwrap();
        prop_assert_eq!(to_serde(doc.root()), value.clone());
        // Skipping takes exactly the same bytes as reading.
        let wrapped = format!("{{\"skipped\":{text},\"kept\":1}}");
        let keep: Keep = |_, key| key == b"kept";
        let mut doc = Doc::new(64);
        doc.read(&mut BufReader::with_capacity(piece, wrapped.as_bytes()), keep).unwrap();
        prop_assert_eq!(doc.root().get("kept").u64(), Some(1));
    }

    #[test]
    fn no_input_harms_the_reader_or_the_next_line(
        value in any_json(),
        mangle in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        piece in 1usize..40,
    ) {
        let mut bytes = serde_json::to_vec(&value).unwrap();
        for (at, byte) in &mangle {
            let at = at.index(bytes.len());
            bytes[at] = if *byte == b'\n' { b' ' } else { *byte };
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        bytes.extend_from_slice(b"\n{\"ok\":true}\n");
        let mut source = BufReader::with_capacity(piece, bytes.as_slice());
        let mut doc = Doc::new(16);
        // Whatever the first line was, it ends at its newline and the second one reads.
        prop_assert!(!matches!(doc.read(&mut source, ALL), Err(Bad::Io(_) | Bad::Unfinished)));
        prop_assert!(skip_line(&mut source).unwrap());
        doc.read(&mut source, ALL).unwrap();
        prop_assert!(doc.root().get("ok").is_true());
    }
}
