"""`millstream acls`: add, list, remove the access rules: who may do what to what.

Against any Kafka broker. The broker decides; these commands only write down and show.
"""

from typing import Annotated

import typer

from millstream.base.errors import MillstreamError, Rejected
from millstream.commands.access_rules import (
    ANYWHERE,
    CLUSTER_NAME,
    OPERATIONS,
    AccessRule,
    Resource,
    parse_operation,
    parse_principal,
    parse_user_principal,
    unknown_users,
)
from millstream.commands.cluster import Cluster, open_cluster
from millstream.commands.options import BadUsage, Brokers, Json, Yes
from millstream.commands.output import confirm, counted, print_json, print_table, say
from millstream.commands.plain_help import PlainCommand

app = typer.Typer(no_args_is_help=True, help="Access rules: who may do what.")

Principals = Annotated[
    list[str],
    typer.Option(
        "--principal",
        metavar="USER",
        help="Who: ada, User:ada, or User:* for everybody. Repeatable.",
    ),
]
Operations = Annotated[
    list[str],
    typer.Option(
        "--operation",
        metavar="WORD",
        help=f"What: {', '.join(OPERATIONS)}. read, write, delete and alter include describe, "
        "alter-configs includes describe-configs. Repeatable.",
    ),
]
Topics = Annotated[
    list[str], typer.Option("--topic", metavar="NAME", help="A topic, or * for all. Repeatable.")
]
Groups = Annotated[
    list[str], typer.Option("--group", metavar="NAME", help="A group, or * for all. Repeatable.")
]
TransactionalIds = Annotated[
    list[str],
    typer.Option(
        "--transactional-id", metavar="NAME", help="A transactional id, or * for all. Repeatable."
    ),
]
OfCluster = Annotated[
    bool, typer.Option("--cluster", help="The cluster itself: its topics as a whole, its configs.")
]
Prefix = Annotated[
    bool, typer.Option("--prefix", help="The names are how names begin, not whole names.")
]
Host = Annotated[
    str,
    typer.Option(metavar="ADDRESS", help="From this address only. Otherwise from everywhere."),
]
Deny = Annotated[
    bool,
    typer.Option("--deny/--allow", help="May not, whatever other rules allow; or may (usual)."),
]


class NoSuchRule(Rejected):
    def __init__(self) -> None:
        super().__init__("No rule is like that. `millstream acls list` shows those that are")


@app.command("add", cls=PlainCommand)
def add(
    principal: Principals,
    operation: Operations,
    topic: Topics = [],  # noqa: B006 - typer copies it
    group: Groups = [],  # noqa: B006 - the same
    transactional_id: TransactionalIds = [],  # noqa: B006 - the same
    cluster: OfCluster = False,
    prefix: Prefix = False,
    deny: Deny = False,
    host: Host = ANYWHERE,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Add rules: each principal, each operation, each resource.

    A producer needs write on its topics; a consumer read on its topics and on its group. A rule
    that is there already is no error.

    Example: millstream acls add --principal ada --operation read --topic clicks
    """
    resources = _resources(topic, group, transactional_id, cluster, is_prefix=prefix)
    if not resources:
        raise BadUsage("say what it is about: --topic, --group, --transactional-id or --cluster")
    rules = [
        AccessRule(
            principal=parse_user_principal(who),
            resource=resource,
            operation=parse_operation(what),
            is_allowed=not deny,
            host=host,
        )
        for who in principal
        for resource in resources
        for what in operation
    ]
    connected = open_cluster(brokers)
    connected.add_rules(rules)
    if json:
        print_json([rule.to_json() for rule in rules])
    else:
        typer.echo("\n".join(map(str, rules)))
    _note_unknown_users(connected, rules)


def _note_unknown_users(cluster: Cluster, rules: list[AccessRule]) -> None:
    try:
        known = cluster.users()
    except MillstreamError:
        return  # the rules are made; a hint is not worth an error
    # Where nobody has a password of the broker's, users come from somewhere else.
    for name in unknown_users((rule.principal for rule in rules), known) if known else ():
        say(f"There is no user {name} yet. `millstream users add {name}` adds one.")


@app.command("list", cls=PlainCommand)
def list_rules(
    principal: Principals = [],  # noqa: B006 - typer copies it
    topic: Topics = [],  # noqa: B006 - the same
    group: Groups = [],  # noqa: B006 - the same
    transactional_id: TransactionalIds = [],  # noqa: B006 - the same
    cluster: OfCluster = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """List rules: all, or those that decide about a resource, also by a prefix or by *.

    Example: millstream acls list --topic clicks
    """
    resources = _resources(topic, group, transactional_id, cluster, is_prefix=False)
    principals = [parse_principal(who) for who in principal]
    found = open_cluster(brokers).rules(resources, principals)
    if json:
        print_json([rule.to_json() for rule in found])
    elif not found:
        # librdkafka keeps to itself that the broker refused to list them.
        say("No rules like that, or none that you may see.")
    else:
        print_table(
            ["PRINCIPAL", "MAY", "OPERATION", "RESOURCE", "FROM"],
            [
                [r.principal, "yes" if r.is_allowed else "NO", r.operation, r.resource, r.host]
                for r in found
            ],
        )


@app.command("remove", cls=PlainCommand)
def remove(
    principal: Principals = [],  # noqa: B006 - typer copies it
    operation: Operations = [],  # noqa: B006 - the same
    topic: Topics = [],  # noqa: B006 - the same
    group: Groups = [],  # noqa: B006 - the same
    transactional_id: TransactionalIds = [],  # noqa: B006 - the same
    cluster: OfCluster = False,
    prefix: Prefix = False,
    yes: Yes = False,
    brokers: Brokers = None,
    json: Json = False,
) -> None:
    """Remove the rules of these principals, operations and resources: all that are like that.

    A resource is meant exactly as its rule names it: --topic orders does not touch the rules of
    `ord*` (--topic ord --prefix) or of all topics (--topic '*').

    Example: millstream acls remove --principal ada --operation read --topic clicks --yes
    """
    if not (principal or operation or topic or group or transactional_id or cluster):
        raise BadUsage("say which rules: --principal, --operation, --topic, --group, ...")
    principals = {parse_principal(who) for who in principal}
    operations = {parse_operation(what) for what in operation}
    resources = set(_resources(topic, group, transactional_id, cluster, is_prefix=prefix))
    connected = open_cluster(brokers)
    doomed = [
        rule
        for rule in connected.rules([], [])
        if (not principals or rule.principal in principals)
        and (not operations or rule.operation in operations)
        and (not resources or rule.resource in resources)
    ]
    if not doomed:
        raise NoSuchRule
    for rule in doomed if not json else ():
        typer.echo(str(rule))
    confirm(f"Remove {counted(len(doomed), 'rule')}?", yes=yes)
    connected.remove_rules(doomed)
    if json:
        print_json([rule.to_json() for rule in doomed])
    else:
        say(f"Removed {counted(len(doomed), 'rule')}")


def _resources(
    topics: list[str],
    groups: list[str],
    transactional_ids: list[str],
    is_cluster: bool,
    *,
    is_prefix: bool,
) -> list[Resource]:
    named = {"topic": topics, "group": groups, "transactional-id": transactional_ids}
    found = [
        Resource(kind=kind, name=name, is_prefix=is_prefix)
        for kind, names in named.items()
        for name in names
    ]
    if is_cluster:
        found.append(Resource(kind="cluster", name=CLUSTER_NAME))
    return found
