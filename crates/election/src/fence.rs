//! Resources behind HTTP refuse latecomers: [`FenceLayer`], for every service of `tower` whose answers can be text.
//!
//! ```text
//!   POST /bill                POST /bill                      POST /bill
//!   Fencing-Token: 7          Fencing-Token: 6                Fencing-Token: 2.1
//!     200, and 7 is kept        412, names 6 and 7              200, and 2.1 is kept
//! ```
//!
//! The layer is the first half of a gate: it lets no request begin that is late. A request that was admitted, and then stands
//! still until a later leader has been here, it does not call back. A request whose work must not happen twice takes the
//! [`Token`] from the request's extensions, and compares it in the transaction that writes: see `docs/leadership.md`.

use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use hustings_lease::gate::{Barred, Shelf};
use hustings_lease::{FenceGate, Token};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// The header that carries the token, as `7` or `2.7`.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The treatment of a request without a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Missing {
    /// It is refused, with 400.
    #[default]
    Refused,
    /// It goes on as if there were no gate: for routes that only read, or while clients learn to send tokens.
    Passed,
}

/// Lets requests with the highest token and higher ones through, and answers all others itself:
///
/// | the token | the answer |
/// |---|---|
/// | below the highest | 412, with both tokens in the body |
/// | missing | 400, or as [`FenceLayer::missing`] says |
/// | no token, or several | 400 |
/// | cannot be kept by the shelf | 503 |
///
/// Clones share the gate. It is asked under a lock, and a shelf that waits for a disk holds up the others.
pub struct FenceLayer<S> {
    gate: Arc<Mutex<FenceGate<S>>>,
    missing: Missing,
}

impl<S> Clone for FenceLayer<S> {
    fn clone(&self) -> FenceLayer<S> {
        FenceLayer { gate: self.gate.clone(), missing: self.missing }
    }
}

impl<S> std::fmt::Debug for FenceLayer<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FenceLayer").field("missing", &self.missing).finish_non_exhaustive()
    }
}

/// The reason why a request does not pass: a status, and words for its sender.
type Refusal = (StatusCode, String);

impl<S: Shelf> FenceLayer<S> {
    /// A layer that asks this gate.
    pub fn new(gate: FenceGate<S>) -> FenceLayer<S> {
        FenceLayer { gate: Arc::new(Mutex::new(gate)), missing: Missing::Refused }
    }

    /// Sets the treatment of requests without a token; without this call they are refused.
    #[must_use]
    pub fn missing(self, missing: Missing) -> FenceLayer<S> {
        FenceLayer { missing, ..self }
    }

    /// The token of a request that passes; `None` if it needs none.
    fn admit(&self, headers: &HeaderMap) -> Result<Option<Token>, Refusal> {
        let mut values = headers.get_all(FENCING_TOKEN).iter();
        let (value, further) = (values.next(), values.next());
        let Some(value) = value else {
            return match self.missing {
                Missing::Passed => Ok(None),
                Missing::Refused => Err(bad("there is no Fencing-Token: send the token of your leadership with it")),
            };
        };
        if further.is_some() {
            return Err(bad("there are several Fencing-Tokens: send one, that of your leadership of now"));
        }
        let text = String::from_utf8_lossy(value.as_bytes());
        let token: Token = text.trim().parse().map_err(|error| bad(&format!("{error}")))?;
        let mut gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        match gate.admit(token) {
            Ok(()) => Ok(Some(token)),
            Err(late @ Barred::Late { .. }) => Err((StatusCode::PRECONDITION_FAILED, late.to_string())),
            Err(failed @ Barred::Shelf(_)) => Err((StatusCode::SERVICE_UNAVAILABLE, failed.to_string())),
        }
    }
}

fn bad(why: &str) -> Refusal {
    (StatusCode::BAD_REQUEST, why.to_owned())
}

impl<S, T> Layer<T> for FenceLayer<S> {
    type Service = Fenced<S, T>;

    fn layer(&self, inner: T) -> Fenced<S, T> {
        Fenced { layer: self.clone(), inner }
    }
}

/// A service behind a [`FenceLayer`].
#[derive(Debug)]
pub struct Fenced<S, T> {
    layer: FenceLayer<S>,
    inner: T,
}

impl<S, T: Clone> Clone for Fenced<S, T> {
    fn clone(&self) -> Fenced<S, T> {
        Fenced { layer: self.layer.clone(), inner: self.inner.clone() }
    }
}

impl<S, T, B, R> Service<Request<B>> for Fenced<S, T>
where
    S: Shelf,
    T: Service<Request<B>, Response = Response<R>>,
    T::Future: Send + 'static,
    T::Error: Send + 'static,
    R: From<String> + Send + 'static,
{
    type Response = Response<R>;
    type Error = T::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, T::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), T::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        match self.layer.admit(request.headers()) {
            Ok(token) => {
                token.map(|token| request.extensions_mut().insert(token));
                Box::pin(self.inner.call(request))
            }
            Err((status, why)) => {
                let mut response = Response::new(R::from(why + "\n"));
                *response.status_mut() = status;
                let text = header::HeaderValue::from_static("text/plain; charset=utf-8");
                response.headers_mut().insert(header::CONTENT_TYPE, text);
                Box::pin(std::future::ready(Ok(response)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hustings_lease::gate::Memory;
    use std::convert::Infallible;

    /// Says which token came with a request.
    #[derive(Clone)]
    struct Resource;

    impl Service<Request<()>> for Resource {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            std::future::ready(Ok(Response::new(format!("{:?}", request.extensions().get::<Token>()))))
        }
    }

    async fn ask(service: &mut Fenced<Memory, Resource>, tokens: &[&[u8]]) -> (u16, String) {
        let mut request = Request::new(());
        for token in tokens {
            let value = header::HeaderValue::from_bytes(token).expect("it can be sent");
            request.headers_mut().append(FENCING_TOKEN, value);
        }
        let response = service.call(request).await.expect("it answers");
        (response.status().as_u16(), response.into_body())
    }

    fn layer() -> FenceLayer<Memory> {
        FenceLayer::new(FenceGate::open(Memory::default()).expect("memory does not fail"))
    }

    #[tokio::test]
    async fn equal_and_higher_tokens_pass_and_a_lower_one_is_told_both() {
        let mut service = layer().layer(Resource);
        for token in ["7", "7", "8", "1.1"] {
            let (status, said) = ask(&mut service, &[token.as_bytes()]).await;
            let token: Token = token.parse().expect("it is one");
            assert_eq!(
                (status, said),
                (200, format!("{:?}", Some(token))),
                "the resource gets it, for its transaction"
            );
        }
        // Another connection's clone has the same gate.
        let (status, said) = ask(&mut service.clone(), &[b"9"]).await;
        assert!(status == 412 && said.contains("9 is below 1.1"), "{status}: {said}");
    }

    #[tokio::test]
    async fn what_is_no_token_is_refused_and_raises_nothing() {
        let mut service = layer().layer(Resource);
        for (tokens, words) in [
            (&[][..], "no Fencing-Token"),
            (&[&b"x"[..]], "no fencing token"),
            (&[b""], "no fencing token"),
            (&[b"\xff\xfe"], "no fencing token"),
            (&[b"18446744073709551616"], "no fencing token"),
            (&[b"7", b"8"], "several"),
        ] {
            let (status, said) = ask(&mut service, tokens).await;
            assert!(status == 400 && said.contains(words), "{tokens:?}: {status}: {said}");
        }
        assert_eq!(ask(&mut service, &[b"0"]).await.0, 200);
    }

    #[tokio::test]
    async fn requests_without_a_token_pass_where_one_says_so_and_late_ones_never() {
        let mut service = layer().missing(Missing::Passed).layer(Resource);
        assert_eq!(ask(&mut service, &[b"7"]).await.0, 200);
        assert_eq!(ask(&mut service, &[]).await, (200, "None".to_owned()));
        assert_eq!(ask(&mut service, &[b"6"]).await.0, 412);
        assert_eq!(ask(&mut service, &[b"x"]).await.0, 400);
    }

    /// A disk that is full.
    struct Full;

    impl Shelf for Full {
        type Error = String;

        fn load(&mut self) -> Result<Option<Token>, String> {
            Ok(Some(Token::new(3)))
        }

        fn keep(&mut self, _: Token) -> Result<(), String> {
            Err("no space left".to_owned())
        }
    }

    #[test]
    fn what_cannot_be_kept_is_not_let_through() {
        let layer = FenceLayer::new(FenceGate::open(Full).expect("it can be read"));
        let mut headers = HeaderMap::new();
        headers.insert(FENCING_TOKEN, header::HeaderValue::from_static("4"));
        let (status, why) = layer.admit(&headers).expect_err("it cannot be kept");
        assert!(status == StatusCode::SERVICE_UNAVAILABLE && why.contains("no space left"), "{status}: {why}");
    }
}
