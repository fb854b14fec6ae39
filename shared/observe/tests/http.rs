//! The server as a client sees it, over a plain socket.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use muster_observe::{Health, Http, metrics, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Status and body.
async fn get(port: u16, path: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn json_of(body: &str) -> Value {
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn health_readiness_and_metrics_are_served_where_the_file_says() {
    let dir = tempfile::tempdir().unwrap();
    let http = Http { port: 0, port_file: Some(dir.path().join("deep/port")) };
    let health = Health::starting("log", "reading from sequence 1");
    let metrics = metrics();
    let server = serve(&http, health.clone(), metrics).await.unwrap();
    let text = std::fs::read_to_string(http.port_file.unwrap()).unwrap();
    let port: u16 = text.trim().parse().unwrap();
    assert_eq!(server.address().port(), port);

    health.beat();
    assert_eq!(get(port, "/healthz").await.0, 200);
    let (status, body) = get(port, "/readyz").await;
    let problems = json!({ "ready": false, "problems": { "log": "reading from sequence 1" } });
    assert_eq!((status, json_of(&body)), (503, problems));
    health.set("log", None);
    let (status, body) = get(port, "/readyz").await;
    assert_eq!((status, json_of(&body)), (200, json!({ "ready": true, "problems": {} })));

    metrics::counter!("muster_test_total", "service" => "toy").increment(3);
    metrics::histogram!("muster_test_seconds").record(0.000_07);
    let (status, body) = get(port, "/metrics").await;
    assert_eq!(status, 200);
    assert!(body.contains("muster_test_total{service=\"toy\"} 3"), "{body}");
    assert!(body.contains("muster_test_seconds_bucket{le=\"0.0001\"} 1"), "{body}");

    server.shutdown().await;
    assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err());
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let held = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = Http { port: held.local_addr().unwrap().port(), port_file: None };
    let error = serve(&http, Health::starting("log", ""), metrics()).await.unwrap_err();
    assert!(error.to_string().starts_with(&format!("127.0.0.1:{} can't be opened", http.port)), "{error}");
}
