//! Users, and so passwords, that stand in URLs.

/// A text that people wrote or will read, without the users of its URLs.
///
/// A password may hold any sign but those that end the part of a URL that names user and host: what comes behind may be anything.
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

/// Whether a setting's value may hold a URL that names a user. Rather too often: what it is true of is not shown, and a password may hold
/// signs that end a URL elsewhere.
pub(crate) fn may_name_user(value: &str) -> bool {
    value.split_once("://").is_some_and(|(_, behind)| behind.contains('@'))
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
            assert_eq!(without_users(&url), "http://(left out)@host");
        }
        for without in ["nothing://", "https://host:1/path?mail=ann@example.org", "ann@example.org", "a://b,c://d?@"] {
            assert_eq!(without_users(without), without);
        }
    }

    #[test]
    fn a_setting_that_may_hold_a_password_is_known() {
        for with in
            ["http://u:p@b", "http://a:1,http://u:p@b:2", "http://u:p?w@b", "http://u:p/w#@b", "n=http://u:p,w@b"]
        {
            assert!(may_name_user(with), "{with}");
        }
        for without in ["http://a:1,http://b:2", "ann@example.org", "nothing://", ""] {
            assert!(!may_name_user(without), "{without}");
        }
    }
}
