//! HMAC-SHA256, so that who is told can know that it was we who told.

use sha2::{Digest as _, Sha256};

/// The code of a text under a secret, as hexadecimal digits.
pub fn sign(secret: &[u8], text: &[u8]) -> String {
    const BLOCK: usize = 64;
    let mut key = [0u8; BLOCK];
    if secret.len() > BLOCK {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret);
    }
    let inner = Sha256::new().chain_update(key.map(|b| b ^ 0x36)).chain_update(text).finalize();
    let outer = Sha256::new().chain_update(key.map(|b| b ^ 0x5c)).chain_update(inner).finalize();
    outer.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::sign;

    /// From RFC 4231.
    #[test]
    fn it_says_what_the_standard_says() {
        let long = [0xaa; 131];
        let cases: [(&[u8], &[u8], &str); 3] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (
                b"Jefe",
                b"what do ya want for nothing?",
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            (
                &long,
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
        ];
        for (secret, text, code) in cases {
            assert_eq!(sign(secret, text), code);
        }
    }
}
