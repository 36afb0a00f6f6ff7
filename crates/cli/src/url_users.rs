//! Users, and so passwords, that stand in URLs.

/// The text without the users of its URLs.
///
/// A password may hold any sign but those that end the part of a URL that names user and host.
pub(crate) fn without_users(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once("://") {
        out.push_str(before);
        out.push_str("://");
        rest = match user_in(behind) {
            Some(length) => {
                out.push_str("(left out)");
                &behind[length..]
            }
            None => behind,
        };
    }
    out.push_str(rest);
    out
}

/// Whether a URL in the text names a user.
pub(crate) fn has_user(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("://") {
        if user_in(behind).is_some() {
            return true;
        }
        rest = behind;
    }
    false
}

/// The length of the user with which the rest of a URL begins, behind its scheme.
fn user_in(behind: &str) -> Option<usize> {
    let is_end = |character: char| character.is_whitespace() || "/?#\"<>\\".contains(character);
    let host = behind.find(is_end).unwrap_or(behind.len());
    behind[..host].rfind('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_url_keeps_its_user() {
        let told = without_users(
            "peer http://ann:s3cret@10.0.0.1:2380,https://b:2380/a@b \"https://token@c\" and ann@example.org",
        );
        assert_eq!(
            told,
            "peer http://(left out)@10.0.0.1:2380,https://b:2380/a@b \"https://(left out)@c\" and ann@example.org"
        );
        for user in ["p@ss:w", "ann:s,cret", "ann:it's"] {
            let url = format!("http://{user}@host");
            assert_eq!((without_users(&url), has_user(&url)), ("http://(left out)@host".into(), true));
        }
        for without in ["nothing://", "https://host:1/path?mail=ann@example.org", "ann@example.org", "a://b,c://d?@"] {
            assert_eq!((without_users(without), has_user(without)), (without.to_owned(), false));
        }
        assert!(has_user("http://a:1,http://u:p@b:2"));
    }
}
