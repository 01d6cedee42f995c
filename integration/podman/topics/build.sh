# Building images.
mkdir -p "$home/context"
echo content > "$home/context/file"
cat > "$home/context/Containerfile" <<DOCKER
FROM $image AS first
RUN echo built > /built && id -u
COPY file /file
USER mail
RUN id -un && ! touch /root/x
FROM $image
COPY --from=first /built /file /from/
ENTRYPOINT ["cat"]
CMD ["/from/built"]
DOCKER
check 'podman' '^built$' 'podman build --network none --no-cache -t localhost/made "$home/context" >/dev/null 2>&1; run localhost/made'
check 'what was copied' '^content$' 'run localhost/made /from/file'
check 'a step that fails' 'exit status 5' '! printf "FROM $image\nRUN exit 5\n" | podman build --network none --no-cache -f - "$home/context" 2>&1'
check 'buildah' 'built by buildah' 'printf "FROM $image\nRUN echo built by buildah\n" | buildah bud --runtime "$(podman info -f "{{.Host.OCIRuntime.Path}}")" --network none --no-cache -f - "$home/context" 2>&1'
check 'buildah run' '^in it$' 'c=$(buildah from --pull-never $image); buildah run --network none --runtime "$(podman info -f "{{.Host.OCIRuntime.Path}}")" --isolation oci "$c" echo in it; buildah rm "$c" >/dev/null'
check 'buildah run with a volume' '^content$' 'c=$(buildah from --pull-never $image); buildah run --network none --runtime "$(podman info -f "{{.Host.OCIRuntime.Path}}")" --isolation oci -v "$home/context:/v:ro" "$c" cat /v/file; buildah rm "$c" >/dev/null'
check 'nothing is left' '^0$' 'podman rmi -f localhost/made >/dev/null; podman image prune -f >/dev/null; buildah containers -q | wc -l'
