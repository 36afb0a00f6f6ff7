//! JSON values that can be keys and be compared: [`Json`].

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// A JSON value in its canonical text: object keys in order, no spaces. Equal values are equal texts, so that it can be an
/// ordered map's key and a replicated state machine's content. Integers stay integers (MC-7); 1 and 1.0 differ.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Json(String);

impl Json {
    /// The canonical form of a value.
    pub fn of(value: &Value) -> Json {
        Json(value.to_string())
    }

    /// The value as JSON.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).expect("it was a value's own text when it was made")
    }
}

impl TryFrom<String> for Json {
    type Error = serde_json::Error;

    fn try_from(text: String) -> Result<Json, serde_json::Error> {
        serde_json::from_str::<Value>(&text).map(|value| Json::of(&value))
    }
}

impl From<Json> for String {
    fn from(json: Json) -> String {
        json.0
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_have_one_text_and_integers_stay_integers() {
        let one = Json::try_from(r#"{ "b": 1, "a": [2, null] }"#.to_string()).unwrap();
        assert_eq!(one, Json::of(&json!({"a": [2, null], "b": 1})));
        assert_eq!(one.to_string(), r#"{"a":[2,null],"b":1}"#);
        assert_ne!(Json::of(&json!(1)), Json::of(&json!(1.0)));
        assert!(Json::try_from("{".to_string()).is_err());
    }
}
