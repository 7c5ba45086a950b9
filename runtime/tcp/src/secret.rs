//! The secret of a run: what its processes know and strangers do not. It never goes over the network. Each side sends a number that it
//! has drawn, and the other one proves by both numbers that it knows the secret, with HMAC-SHA256 (RFC 2104).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// Variables of the secret itself, and of a file that has it.
pub(crate) const SECRET: &str = "MESHWRIGHT_SECRET";
pub(crate) const SECRET_FILE: &str = "MESHWRIGHT_SECRET_FILE";

/// The fewest bytes of a secret: 128 bits cannot be tried out, and 16 characters of base64 hold 96.
const FEWEST: usize = 16;

/// The most bytes of a file that has one.
const MOST: u64 = 4096;

/// A number that is used once, and a proof.
pub(crate) type Nonce = [u8; 32];
pub(crate) type Proof = [u8; 32];

/// A word that all processes of a run know. It prints as its name alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<[u8]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// The side that proves, so that neither can send back what the other one has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The process that connects.
    Guest,
    /// The process that listens.
    Host,
}

impl Side {
    pub(crate) fn other(self) -> Side {
        match self {
            Side::Guest => Side::Host,
            Side::Host => Side::Guest,
        }
    }
}

/// Numbers that both sides have drawn for one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Nonces {
    pub(crate) guest: Nonce,
    pub(crate) host: Nonce,
}

impl Secret {
    /// Draws one, of 64 hexadecimal digits.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn draw() -> io::Result<String> {
        Ok(nonce()?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The secret of a text, without white space around it.
    ///
    /// # Errors
    /// It is too short.
    pub fn of(text: &str, place: &str) -> Result<Secret, String> {
        let text = text.trim();
        match text.len() {
            ..FEWEST => Err(format!("{place} has {} bytes; a secret has {FEWEST} or more", text.len())),
            _ => Ok(Secret(text.as_bytes().into())),
        }
    }

    /// The secret that the environment states, if it states one.
    ///
    /// # Errors
    /// It is no text, too short, stated twice, or others can read its file.
    pub(crate) fn from_env() -> Result<Option<Secret>, String> {
        for name in [SECRET, SECRET_FILE] {
            if std::env::var_os(name).is_some_and(|value| value.to_str().is_none()) {
                return Err(format!(
                    "{name} is no text in UTF-8; hexadecimal digits are, such as those of `openssl rand -hex 32`"
                ));
            }
        }
        Secret::read(|name| std::env::var(name).ok())
    }

    fn read(get: impl Fn(&str) -> Option<String>) -> Result<Option<Secret>, String> {
        match (get(SECRET), get(SECRET_FILE)) {
            (None, None) => Ok(None),
            (Some(text), None) => Secret::of(&text, SECRET).map(Some),
            (None, Some(path)) => Secret::of_file(Path::new(&path)).map(Some),
            (Some(_), Some(_)) => Err(format!("{SECRET} and {SECRET_FILE} are both set; one is enough")),
        }
    }

    fn of_file(path: &Path) -> Result<Secret, String> {
        if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(format!("{SECRET_FILE}: {} is no regular file", path.display()));
        }
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = opened.map_err(|why| unreadable(path, &why))?;
        check_private(path, &metadata)?;
        let mut text = String::new();
        file.take(MOST).read_to_string(&mut text).map_err(|why| unreadable(path, &why))?;
        Secret::of(&text, &path.display().to_string())
    }

    fn mac(&self, side: Side, nonces: &Nonces, text: &str) -> Hmac<Sha256> {
        // HMAC takes keys of any length.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.update(match side {
            Side::Guest => b"meshwright guest",
            Side::Host => b"meshwright host ",
        });
        mac.update(&nonces.guest);
        mac.update(&nonces.host);
        mac.update(text.as_bytes());
        mac
    }
}

fn unreadable(path: &Path, why: &io::Error) -> String {
    format!("{SECRET_FILE}: {} cannot be read: {why}", path.display())
}

/// Refuses a file that others than its owner can read.
#[cfg(unix)]
fn check_private(path: &Path, metadata: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    match metadata.permissions().mode() & 0o077 {
        0 => Ok(()),
        _ => Err(format!("others can read {}: chmod 600 makes it private", path.display())),
    }
}

/// Nothing: the system has no such permissions.
#[cfg(not(unix))]
fn check_private(_: &Path, _: &fs::Metadata) -> Result<(), String> {
    Ok(())
}

/// A number of the system that nobody can guess.
///
/// # Errors
/// The system has none.
pub(crate) fn nonce() -> io::Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce).map_err(io::Error::from)?;
    Ok(nonce)
}

/// The proof of a side that it knows the secret and has said a text. Without a secret there is nothing to prove.
pub(crate) fn prove(secret: Option<&Secret>, side: Side, nonces: &Nonces, text: &str) -> Proof {
    secret.map_or(Proof::default(), |secret| secret.mac(side, nonces, text).finalize().into_bytes().into())
}

/// True if a proof is that of a side that knows the secret, or if there is none.
pub(crate) fn is_proved(secret: Option<&Secret>, side: Side, nonces: &Nonces, text: &str, proof: &Proof) -> bool {
    secret.is_none_or(|secret| secret.mac(side, nonces, text).verify_slice(proof).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Secret>, String> {
        Secret::read(|name| variables.iter().find(|(other, _)| *other == name).map(|(_, value)| value.to_string()))
    }

    #[test]
    fn a_proof_is_of_one_side_one_connection_and_one_text() {
        let secret = Secret::of("correct horse battery", "a test").unwrap();
        let other = Secret::of("correct horse batterz", "a test").unwrap();
        let nonces = Nonces { guest: [1; 32], host: [2; 32] };
        let proof = prove(Some(&secret), Side::Guest, &nonces, "hello");
        let holds = |secret, side, nonces: &Nonces, text| is_proved(Some(secret), side, nonces, text, &proof);
        assert!(holds(&secret, Side::Guest, &nonces, "hello"));
        assert!(!holds(&other, Side::Guest, &nonces, "hello"));
        assert!(!holds(&secret, Side::Host, &nonces, "hello"));
        assert!(!holds(&secret, Side::Guest, &Nonces { host: [3; 32], ..nonces }, "hello"));
        assert!(!holds(&secret, Side::Guest, &Nonces { guest: [3; 32], ..nonces }, "hello"));
        assert!(!holds(&secret, Side::Guest, &nonces, "hellp"));
        assert!(is_proved(None, Side::Guest, &nonces, "hello", &[0; 32]));
    }

    #[test]
    fn a_secret_prints_as_nothing_and_two_draws_differ() {
        let drawn = [Secret::draw().unwrap(), Secret::draw().unwrap()];
        assert!(drawn[0] != drawn[1] && drawn.iter().all(|text| text.len() == 64));
        assert_eq!(format!("{:?}", Secret::of(&drawn[0], "a test")), "Ok(Secret)");
    }

    #[test]
    fn a_secret_comes_from_a_variable_or_a_private_file() {
        assert_eq!(read(&[]), Ok(None));
        assert!(read(&[(SECRET, " 0123456789abcdef\n")]).unwrap() == Secret::of("0123456789abcdef", "").ok());
        let short = "MESHWRIGHT_SECRET has 4 bytes; a secret has 16 or more";
        assert_eq!(read(&[(SECRET, "1234")]), Err(short.to_string()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let named = path.display().to_string();
        let absent = read(&[(SECRET_FILE, &named)]).unwrap_err();
        assert!(absent.contains("secret cannot be read: "), "{absent}");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
            let open = read(&[(SECRET_FILE, &named)]).unwrap_err();
            assert!(open.starts_with("others can read ") && open.contains("chmod 600"), "{open}");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(read(&[(SECRET_FILE, &named)]).unwrap() == Secret::of("0123456789abcdef", "").ok());
        let folder_itself = read(&[(SECRET_FILE, &folder.path().display().to_string())]).unwrap_err();
        assert!(folder_itself.ends_with(" is no regular file"), "{folder_itself}");
        assert_eq!(read(&[(SECRET, "")]), Err("MESHWRIGHT_SECRET has 0 bytes; a secret has 16 or more".to_string()));
        let twice = read(&[(SECRET, "0123456789abcdef"), (SECRET_FILE, &named)]).unwrap_err();
        assert!(twice.contains("both set"), "{twice}");
    }
}
