//! The client against a server of one service, in this process.

#![allow(clippy::unwrap_used, reason = "a test may end where it fails")]

use hustings_api::client::{Client, ConnectError};
use hustings_api::health::health_check_response::ServingStatus;
use hustings_api::health::health_server::{Health, HealthServer};
use hustings_api::health::{HealthCheckRequest, HealthCheckResponse};
use tonic::codegen::{BoxStream, tokio_stream};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A server that is well.
struct Well;

#[tonic::async_trait]
impl Health for Well {
    async fn check(&self, _: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(HealthCheckResponse { status: ServingStatus::Serving.into() }))
    }

    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn watch(&self, _: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let now = HealthCheckResponse { status: ServingStatus::Serving.into() };
        Ok(Response::new(Box::pin(tokio_stream::once(Ok(now)))))
    }
}

/// Starts a server; gives its address. It ends with the runtime of the test.
async fn start() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = Server::builder().add_service(HealthServer::new(Well));
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
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
