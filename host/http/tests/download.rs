//! Downloads from a server that redirects, fails, and sends too much.

mod served;

use corver_http::{DownloadError, download};
use served::{Response, Server};

#[test]
fn file_is_downloaded_through_redirect_and_after_failure() {
    let redirect = "Location: /there\r\n";
    let server = Server::with_responses(vec![
        Response::Answer(302, redirect, String::new()),
        Response::Answer(503, "", String::new()),
        Response::Answer(302, redirect, String::new()),
        Response::CloseMidAnswer("par"),
        Response::Answer(200, "", "whole".into()),
    ]);
    assert_eq!(download(&format!("{}/here", server.url), 1_000).unwrap(), b"whole");
    let routes: Vec<String> =
        server.requests().iter().map(|request| request.route().to_owned()).collect();
    assert_eq!(routes, ["/here", "/there", "/here", "/there", "/here"]);
}

#[test]
fn missing_and_too_large_files_are_refused_at_once() {
    for (response, problem) in [
        (Response::Answer(404, "", "gone".into()), "status 404"),
        (Response::Answer(200, "", "123456".into()), "the file has more than 5 bytes"),
        (Response::Answer(302, "Location: /again\r\n", String::new()), "redirects"),
    ] {
        let server = Server::with_responses(vec![response]);
        let error = download(&server.url, 5).unwrap_err();
        assert!(matches!(error, DownloadError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(problem), "{problem}: {error}");
    }
    assert!(matches!(download("ftp://host/file", 5).unwrap_err(), DownloadError::Url(_)));
}
