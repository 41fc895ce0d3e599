//! The description of the HTTP interface, made from the table of routes.

use serde_json::{Map, Value, json};

use super::routes::{Answers, Kind, Parameter, ROUTES, Route};

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "lariat",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the command line can do, by HTTP on this machine. Answers are what `--json` prints.",
        },
        "servers": [{"url": "http://127.0.0.1:{port}", "variables": {"port": {"default": "4700"}}}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": shared_responses(),
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error"],
                    "properties": {"error": {
                        "type": "object",
                        "required": ["code", "text"],
                        "properties": {"code": {"type": "integer"}, "text": {"type": "string"}},
                    }},
                },
            },
        },
    })
}

/// The document as it is checked in.
pub fn text() -> String {
    serde_json::to_string_pretty(&document()).unwrap_or_default() + "\n"
}

fn operation(route: &Route) -> Value {
    let mut parameters = Vec::new();
    if route.path.contains("{name}") {
        parameters.push(json!({"name": "name", "in": "path", "required": true, "schema": {"type": "string"},
            "description": "the file's name"}));
    }
    if route.path.contains("{target}") {
        parameters.push(json!({"name": "target", "in": "path", "required": true, "schema": {"type": "string"},
            "description": "a handle, a name, the agent's own id, or a unique prefix of one"}));
    }
    let mut operation = json!({"summary": route.about, "operationId": name(route), "responses": responses(route)});
    if route.method == "GET" {
        parameters.extend(route.parameters.iter().map(|p| {
            json!({"name": p.name, "in": "query", "required": p.required, "description": p.about, "schema": schema(p.kind)})
        }));
    } else {
        operation["requestBody"] = body(route.parameters);
    }
    operation["parameters"] = parameters.into();
    if route.is_open() {
        operation["security"] = json!([]);
    }
    operation
}

fn name(route: &Route) -> String {
    let path = route.path.trim_start_matches("/v1").trim_start_matches('/').replace(['/', '.', '{', '}'], "_");
    let path = if path.is_empty() { "page".to_owned() } else { path };
    format!("{}_{}", route.method.to_ascii_lowercase(), path.trim_matches('_').replace("__", "_"))
}

fn body(parameters: &[Parameter]) -> Value {
    let required = parameters.iter().any(|p| p.required);
    json!({"required": required, "content": {"application/json": {"schema": schema_of(parameters)}}})
}

/// The shape of an object of these parameters.
pub fn schema_of(parameters: &[Parameter]) -> Value {
    let property = |p: &Parameter| {
        let mut schema = schema(p.kind);
        schema["description"] = p.about.into();
        (p.name.to_owned(), schema)
    };
    let properties: Map<String, Value> = parameters.iter().map(property).collect();
    let required: Vec<&str> = parameters.iter().filter(|p| p.required).map(|p| p.name).collect();
    let mut schema = json!({"type": "object", "properties": properties, "additionalProperties": false});
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn schema(kind: Kind) -> Value {
    match kind {
        Kind::Text | Kind::Word => json!({"type": "string"}),
        Kind::Path | Kind::Place => json!({"type": "string", "pattern": "^/"}),
        Kind::Flag => json!({"type": "boolean"}),
        Kind::Number => json!({"type": "integer", "minimum": 0}),
        Kind::Paths => json!({"type": "array", "items": {"type": "string", "pattern": "^/"}}),
        Kind::Texts | Kind::Words | Kind::Rest => json!({"type": "array", "items": {"type": "string"}}),
    }
}

/// What each status means.
const MEANINGS: [(u16, &str); 14] = [
    (400, "not understood, or not one session"),
    (401, "the token is missing or wrong"),
    (403, "a page of another origin asked"),
    (404, "not there"),
    (405, "not by this method"),
    (409, "refused: claimed, blocked, alive, or nothing to do it to"),
    (413, "too long"),
    (415, "a body that is not JSON"),
    (421, "another host was asked for"),
    (422, "it was tried and failed"),
    (426, "only on a WebSocket"),
    (429, "too many try"),
    (503, "not everything could be read, so it cannot be told"),
    (504, "it took too long"),
];

fn responses(route: &Route) -> Value {
    let content = match route.answers {
        Answers::Events => json!({"text/event-stream": {"schema": {"type": "string"}}}),
        Answers::Metrics => json!({"text/plain": {"schema": {"type": "string"}}}),
        Answers::Page(Some(_)) => json!({"text/html": {"schema": {"type": "string"}}}),
        Answers::Page(None) => json!({"*/*": {}}),
        Answers::Lines(_) => json!({"application/x-ndjson": {"schema": {"type": "string"}}}),
        _ => json!({"application/json": {"schema": {"type": "object"}}}),
    };
    let mut all = json!({"200": {"description": route.about, "content": content}});
    if route.answers == Answers::Terminal {
        all = json!({"101": {"description": "from here on it is a WebSocket"}});
    }
    for (status, meaning) in MEANINGS {
        let odd = match status {
            426 => route.answers != Answers::Terminal,
            429 => route.answers != Answers::Enter,
            _ => false,
        };
        if odd {
            continue;
        }
        // A verb that was tried tells in its own words how it went.
        let tried = route.method == "POST" && matches!(status, 409 | 422 | 503 | 504);
        if tried && matches!(route.answers, Answers::Lines(_)) {
            let content = json!({"application/x-ndjson": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}}});
            all[status.to_string()] = json!({"description": meaning, "content": content});
            continue;
        }
        let name = if tried { "Tried" } else { "Refused" };
        all[status.to_string()] = json!({"$ref": format!("#/components/responses/{name}{status}")});
    }
    all
}

fn shared_responses() -> Value {
    let mut all = Map::new();
    for (status, meaning) in MEANINGS {
        for (name, schema) in
            [("Refused", json!({"$ref": "#/components/schemas/Error"})), ("Tried", json!({"type": "object"}))]
        {
            let content = json!({"application/json": {"schema": schema}});
            all.insert(format!("{name}{status}"), json!({"description": meaning, "content": content}));
        }
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The document that is checked in is the one that the table makes. To write it anew, run
    /// this with `LARIAT_WRITE_OPENAPI` set.
    #[test]
    fn the_document_that_is_checked_in_is_true() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("LARIAT_WRITE_OPENAPI").is_some() {
            #[expect(clippy::disallowed_methods, reason = "a person asked for the document")]
            std::fs::write(path, text()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text(), "LARIAT_WRITE_OPENAPI=1 writes it anew");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = ROUTES.iter().map(name).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{names:?}");
    }
}
