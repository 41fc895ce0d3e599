//! Who may ask by HTTP: decided before anything else, for every route alike.
//!
//! A page in the user's browser can reach any port of this machine. So three things
//! must be right, and each alone keeps most of them out: the host that was asked for
//! is one of ours by its exact name (a name that was made to lead here is not), the
//! page that asks is one of ours, if it is a page, and the token is known.

/// Why somebody may not ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The host is not one of ours.
    Host,
    /// The page is not one of ours.
    Origin,
    /// The token is not ours, or there is none.
    Token,
}

impl Refusal {
    /// The status and the reason.
    pub fn told(self) -> (u16, &'static str) {
        match self {
            Refusal::Host => (421, "this host is not served here; ask for 127.0.0.1 with the port"),
            Refusal::Origin => (403, "pages of other origins may not ask"),
            Refusal::Token => (401, "a token is needed: Authorization: Bearer TOKEN (lariat daemon token)"),
        }
    }
}

/// What a request says of itself; each header as often as it was given.
#[derive(Clone, Default, Debug)]
pub struct Claims<'a> {
    /// `Host`.
    pub host: Vec<&'a [u8]>,
    /// `Origin`.
    pub origin: Vec<&'a [u8]>,
    /// `Authorization`.
    pub authorization: Vec<&'a [u8]>,
    /// `Sec-WebSocket-Protocol`, where a WebSocket is asked for: a page cannot give it
    /// any other header.
    pub protocols: Vec<&'a [u8]>,
}

/// What a token is said as, where it is one of a WebSocket's protocols.
const AS_PROTOCOL: &[u8] = b"lariat.token.";

/// Whether what was given is known.
pub type Known<'a> = &'a dyn Fn(&[u8]) -> bool;

/// Lets in or keeps out; without a token where none is needed. What was given, where it was looked at.
pub fn check<'a>(claims: &Claims<'a>, port: u16, known: Option<Known<'_>>) -> Result<Option<&'a [u8]>, Refusal> {
    let hosts = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let is_ours = |host: &[u8]| hosts.iter().any(|h| h.as_bytes() == host);
    match claims.host.as_slice() {
        [host] if is_ours(host) => {}
        _ => return Err(Refusal::Host),
    }
    match claims.origin.as_slice() {
        [] => {}
        [origin] if origin.strip_prefix(b"http://").is_some_and(is_ours) => {}
        _ => return Err(Refusal::Origin),
    }
    let Some(known) = known else { return Ok(None) };
    let named = claims.protocols.iter().flat_map(|p| p.split(|b| *b == b',')).map(<[u8]>::trim_ascii);
    let named: Vec<&[u8]> = named.filter_map(|p| p.strip_prefix(AS_PROTOCOL)).collect();
    let given = match (claims.authorization.as_slice(), named.as_slice()) {
        ([given], []) => given.strip_prefix(b"Bearer "),
        ([], [given]) => Some(*given),
        _ => None,
    };
    given.filter(|given| known(given)).map(Some).ok_or(Refusal::Token)
}

/// Compares in a time that depends on the lengths alone.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let different = a.iter().zip(b).fold(0, |all, (x, y)| std::hint::black_box(all | (x ^ y)));
    a.len() == b.len() && different == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(claims: &Claims<'_>, port: u16, token: Option<&str>) -> Result<(), Refusal> {
        let known = token.map(|token| move |given: &[u8]| same(given, token.as_bytes()));
        super::check(claims, port, known.as_ref().map(|k| k as Known<'_>)).map(drop)
    }

    #[test]
    fn only_the_very_names_are_ours() {
        let ok =
            Claims { host: vec![b"127.0.0.1:80"], origin: vec![], authorization: vec![b"Bearer t"], protocols: vec![] };
        assert_eq!(check(&ok, 80, Some("t")), Ok(()));
        for host in
            ["127.0.0.1", "127.0.0.1:81", "LOCALHOST:80", "localhost.evil:80", "localhost:80.evil", "", "[::1]:80"]
        {
            assert_eq!(
                check(&Claims { host: vec![host.as_bytes()], ..ok.clone() }, 80, Some("t")),
                Err(Refusal::Host),
                "{host}"
            );
        }
        let twice = Claims { host: vec![b"127.0.0.1:80", b"evil"], ..ok.clone() };
        assert_eq!(check(&twice, 80, Some("t")), Err(Refusal::Host));
        for origin in ["null", "http://evil", "https://127.0.0.1:80", "http://127.0.0.1", "127.0.0.1:80", ""] {
            let claims = Claims { origin: vec![origin.as_bytes()], ..ok.clone() };
            assert_eq!(check(&claims, 80, Some("t")), Err(Refusal::Origin), "{origin}");
        }
        for token in ["Bearer ", "Bearer x", "Bearer tt", "t", "bearer t", "Basic t"] {
            let claims = Claims { authorization: vec![token.as_bytes()], ..ok.clone() };
            assert_eq!(check(&claims, 80, Some("t")), Err(Refusal::Token), "{token}");
        }
        // A page says it as a protocol, and only there; what needs no token still needs the rest.
        let page = Claims { authorization: vec![], ..ok.clone() };
        for (protocols, wanted) in [
            (vec![b"lariat.terminal.v1, lariat.token.t".as_slice()], Ok(())),
            (vec![b"lariat.terminal.v1", b"lariat.token.t"], Ok(())),
            (vec![b"lariat.token.x"], Err(Refusal::Token)),
            (vec![b"lariat.token.t,lariat.token.t"], Err(Refusal::Token)),
            (vec![b"t"], Err(Refusal::Token)),
        ] {
            assert_eq!(check(&Claims { protocols, ..page.clone() }, 80, Some("t")), wanted);
        }
        assert_eq!(check(&page, 80, None), Ok(()));
        assert_eq!(check(&Claims { host: vec![b"evil"], ..page.clone() }, 80, None), Err(Refusal::Host));
        assert_eq!(check(&Claims { origin: vec![b"http://evil"], ..page }, 80, None), Err(Refusal::Origin));
    }
}
