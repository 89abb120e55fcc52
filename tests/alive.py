"""Whether a process that may be nobody's child runs."""


def is_alive(process_id):
    try:
        with open(f"/proc/{process_id}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
