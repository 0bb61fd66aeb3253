"""Commands for operators of a Kubernetes cluster. They need neither a running service nor the cluster."""

import typer

from gavel.cli.connection import app

kubernetes = typer.Typer(help="What a Kubernetes cluster is to be told.", no_args_is_help=True)
app.add_typer(kubernetes, name="kubernetes")


@kubernetes.command()
def crd() -> None:
    """Print the definition of the kind TrainingJob: gavel kubernetes crd | kubectl apply -f -."""
    from gavel.daemon.training_jobs.definition import manifest

    typer.echo(manifest(), nl=False)
