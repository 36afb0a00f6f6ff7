//! The client against a server of one service, in this process.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

use hustings_api::client::{Client, ConnectError, Options};
use hustings_api::health::health_check_response::ServingStatus;
use hustings_api::health::health_server::{Health, HealthServer};
use hustings_api::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::codegen::{BoxStream, tokio_stream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A server that says this of itself.
struct Patient(ServingStatus);

#[tonic::async_trait]
impl Health for Patient {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(HealthCheckResponse { status: self.0.into() }))
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let now = HealthCheckResponse { status: self.0.into() };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(now)))))
    }
}

/// Starts a server; gives its address. It ends with the runtime of the test.
async fn start() -> String {
    start_saying(ServingStatus::Serving).await
}

async fn start_saying(status: ServingStatus) -> String {
    serve(Server::builder().add_service(HealthServer::new(Patient(status)))).await
}

async fn serve(server: tonic::transport::server::Router) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

/// A process that stands still: its kernel accepts, and nobody answers.
async fn stand_still() -> (String, tokio::net::TcpListener) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap().to_string(), listener)
}

/// An address that refuses: bound once, and given back.
async fn nobody() -> String {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

async fn status(client: &Client) -> ServingStatus {
    client.health().check(HealthCheckRequest::default()).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn the_first_endpoint_that_answers_is_taken() {
    let endpoints = [nobody().await, start().await, start().await];
    let client = Client::connect(&endpoints).await.unwrap();
    assert_eq!(client.endpoint(), endpoints[1]);
    assert_eq!(status(&client).await, ServingStatus::Serving);
}

#[tokio::test]
async fn a_process_that_stands_still_holds_up_nobody() {
    let (still, _listener) = stand_still().await;
    let endpoints = [still, start().await];
    let mut client = Client::connect(&endpoints).await.unwrap();
    assert_eq!(client.endpoint(), endpoints[1]);
    client.move_on().await.unwrap();
    assert_eq!(client.endpoint(), endpoints[1], "nor when it is its turn");
}

#[tokio::test]
async fn one_that_serves_is_taken_before_one_that_does_not() {
    let (still, _listener) = stand_still().await;
    let cut_off = start_saying(ServingStatus::NotServing).await;
    let endpoints = [still.clone(), cut_off.clone(), start().await];
    assert_eq!(Client::connect(&endpoints).await.unwrap().endpoint(), endpoints[2]);
    let client = Client::connect(&[nobody().await, still.clone(), cut_off.clone()]).await.unwrap();
    assert_eq!(client.endpoint(), cut_off, "it may serve soon");
    let brief = Options { connect_timeout: std::time::Duration::from_millis(300), ..Options::default() };
    let client = Client::connect_with(&[nobody().await, still.clone()], brief).await.unwrap();
    assert_eq!(client.endpoint(), still, "it may be late");
}

#[tokio::test]
async fn one_that_does_not_know_the_question_has_answered() {
    let endpoints = [serve(Server::builder().add_routes(tonic::service::Routes::default())).await, start().await];
    assert_eq!(Client::connect(&endpoints).await.unwrap().endpoint(), endpoints[0]);
}

#[tokio::test]
async fn moving_on_goes_round_the_endpoints() {
    let endpoints = [start().await, nobody().await, start().await];
    let mut client = Client::connect(&endpoints).await.unwrap();
    client.move_on().await.unwrap();
    assert_eq!(client.endpoint(), endpoints[2]);
    assert_eq!(status(&client).await, ServingStatus::Serving);
    client.move_on().await.unwrap();
    assert_eq!(client.endpoint(), endpoints[0]);
}

#[tokio::test]
async fn where_nobody_answers_the_reasons_are_told() {
    let endpoint = nobody().await;
    let refusal = Client::connect(&[&endpoint]).await.unwrap_err();
    assert!(matches!(refusal, ConnectError::NoneAnswers { .. }));
    let text = refusal.to_string();
    assert!(text.contains(&endpoint) && text.to_lowercase().contains("refused"), "{text}");
    assert!(matches!(Client::connect(&[] as &[&str]).await, Err(ConnectError::NoEndpoint)));
}
