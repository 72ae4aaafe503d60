//! Errors of the API server, with advice for the user.

use crate::failure::Failure;

pub fn failure(server: &str, doing: &str, error: kube::Error) -> Failure {
    let kube::Error::Api(status) = &error else {
        return Failure::Failed(anyhow::Error::new(error).context(format!(
            "cannot {doing} at {server}: is the cluster up, and is it the right one (kubectl config current-context)?"
        )));
    };
    let message = match status.code {
        401 => format!(
            "cannot {doing}: {server} does not accept these credentials: log in again, or choose another user with --context"
        ),
        403 => format!(
            "you may not {doing}, and an answer without it would be wrong: {}: ask for `get` and `list` on it, or narrow the question with --namespace",
            status.message
        ),
        404 => format!(
            "cannot {doing}: {server} does not know the kind: install Toolcrib there (charts/toolcrib), or choose another cluster with --context"
        ),
        code => format!(
            "cannot {doing}: {server} answered {code}: {}",
            status.message
        ),
    };
    Failure::Failed(anyhow::anyhow!(message))
}
